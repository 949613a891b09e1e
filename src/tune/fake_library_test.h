#pragma once
// A fake library whose kernels a test configures: right or wrong, fast or slow, or failing.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/provider.h"
#include "base/clock.h"
#include "base/error.h"
#include "program/program.h"

namespace tilewright::test {

/// Each kernel needs its second input, a constant, in reverse order.
class FakeLibrary : public cpu::KernelProvider {
  public:
    enum class Does : uint8_t { Right, Slow, Wrong, FailsToMake, FailsToRun, PreparesTooMuch, UsesTooMuchScratch };
    using Kernels = std::vector<std::pair<std::string, Does>>;

    explicit FakeLibrary(Kernels kernels) : kernels_(std::move(kernels)) {}
    std::string name() const override { return "fake 1.0"; }
    std::optional<std::string> refusal(const Program&, const std::vector<bool>&) const override { return {}; }
    std::vector<Candidate> candidates(const Program& stages, const std::vector<bool>&, int,
                                      size_t most) const override {
        ++listed_;
        if (kernels_.empty()) throw RuntimeError("has no such primitive");
        std::vector<Candidate> out;
        for (const auto& [kernel, does] : kernels_) {
            if (out.size() == most) break;
            out.push_back({kernel, [this, stages, does] {
                               ++made_;
                               if (does == Does::FailsToMake) throw RuntimeError("has no such primitive");
                               return std::make_shared<const Call>(stages, does);
                           }});
        }
        return out;
    }
    int listed() const { return listed_; }  ///< calls of candidates()
    int made() const { return made_; }      ///< calls made by candidates

  private:
    class Call : public cpu::LibraryCall {
      public:
        Call(Program stages, Does does) : stages_(std::move(stages)), does_(does) {}
        std::vector<Prepared> prepared() const override { return {{1, bytes(1)}}; }
        void prepare(size_t, const void* constant, void* to) const override {
            const auto* from = static_cast<const float*>(constant);
            std::reverse_copy(from, from + bytes(1) / 4, static_cast<float*>(to));
            if (does_ == Does::PreparesTooMuch) static_cast<float*>(to)[bytes(1) / 4] = 1;
        }
        int64_t scratch_bytes(int) const override { return bytes(1); }
        std::unique_ptr<Runs> runs(int) const override { return std::make_unique<Run>(*this); }

      private:
        /// Interprets the stages for new inputs and copies the result for repeated inputs, so that repeated runs are
        /// fast.
        class Run : public Runs {
          public:
            explicit Run(const Call& call) : call_(call) {}
            void run(void* const* tensors, void* scratch) override {
                if (call_.does_ == Does::FailsToRun) throw RuntimeError("fell over");
                const size_t n = call_.stages_.inputs.size();
                std::string given;
                for (size_t i = 0; i < n; ++i)
                    given.append(static_cast<const char*>(tensors[i]), static_cast<size_t>(call_.bytes(i)));
                if (given != known_) {
                    result_ = interpreted(tensors, scratch);
                    known_ = std::move(given);
                }
                if (call_.does_ == Does::UsesTooMuchScratch) static_cast<char*>(scratch)[call_.bytes(1)] = 1;
                auto* to = static_cast<float*>(tensors[n]);
                std::memcpy(to, result_.data(), result_.bytes());
                for (int64_t i = 0; call_.does_ == Does::Wrong && i < result_.count(); ++i) to[i] += 0.01F;
                for (const double end = now_ms() + 1; call_.does_ == Does::Slow && now_ms() < end;) {
                }
            }

          private:
            Tensor interpreted(void* const* tensors, void* scratch) const {
                std::vector<Tensor> inputs;
                for (size_t i = 0; i < call_.stages_.inputs.size(); ++i) {
                    const Value& v = call_.stages_.values[call_.stages_.inputs[i]];
                    void* data = tensors[i];
                    if (i == 1) {
                        const auto* from = static_cast<const float*>(data);
                        std::reverse_copy(from, from + call_.bytes(1) / 4, static_cast<float*>(scratch));
                        data = scratch;
                    }
                    inputs.emplace_back(v.dtype, evaluate(v.shape, Bindings{}), data, nullptr);
                }
                return interpret(call_.stages_, inputs)[0];
            }

            const Call& call_;
            std::string known_;
            Tensor result_;
        };
        int64_t bytes(size_t input) const {
            return 4 * element_count(evaluate(stages_.values[stages_.inputs[input]].shape, Bindings{}));
        }
        Program stages_;
        Does does_;
    };
    Kernels kernels_;
    mutable int listed_ = 0, made_ = 0;
};

}  // namespace tilewright::test
