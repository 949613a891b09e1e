#include "program/analysis/scalar_cost.h"

#include "program/scalar_ops.h"

namespace tilewright {

double operation_cost(ScalarOp op) { return scalar_op_info(op).cost; }

double body_operations(const ScalarBody& body, const std::vector<double>* share) {
    double n = 0;
    for (const ScalarId id : body.nodes().ids())
        n += operation_cost(body[id].op) * (share != nullptr ? (*share)[id.index()] : 1);
    return n;
}

}  // namespace tilewright
