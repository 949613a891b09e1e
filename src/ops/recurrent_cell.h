#pragma once
// One time step of LSTM, GRU and RNN, as primitives.

#include <functional>
#include <vector>

#include "ops/lowering.h"
#include "ops/quantised.h"

namespace tilewright {

/// A step of one direction. The products with the input are computed in advance, for all steps at once.
struct RecurrentCell {
    /// Values read by every step: recurrent weights [hidden, gates * hidden], with scale and zero point if they are
    /// quantised, peepholes and biases [hidden].
    std::vector<ValueId> weights;
    /// x [batch, gates * hidden] and the previous states [batch, hidden]   ->   the new states. `weights` as above, as
    /// values of the program that the step is written into.
    std::function<std::vector<ValueId>(Builder&, ValueId x, const std::vector<ValueId>& states,
                                       const std::vector<ValueId>& weights)>
        step;
    std::optional<ValueId> input_bias;  ///< [gates * hidden], added to the input's products
    size_t states = 1;                  ///< hidden state first; LSTM also has a cell state
};

/// Whether the node is DynamicQuantizeLSTM of com.microsoft: LSTM whose W and R are transposed and quantised, and whose
/// products quantise their other operand, of all steps (X) or of one step (H), as DynamicQuantizeLinear does.
bool quantises_products(const NodeContext& c);
/// Its weights of one direction: input 1 or 2, scale and zero point at `scale` and `scale` + 1.
QuantisedMatrix quantised_matrix(NodeContext& c, size_t weights, size_t scale, size_t direction);

/// Gates per operator: LSTM 4 (input, output, forget, cell), GRU 3 (update, reset, hidden), RNN 1.
size_t gate_count(const NodeContext& c);

/// The cell of one direction of the node: its slice of R, B and P (inputs 2, 3 and, for LSTM, 7), its activation
/// functions, clipping and variants.
RecurrentCell recurrent_cell(NodeContext& c, size_t direction, size_t directions, int64_t hidden);

}  // namespace tilewright
