#include "program/analysis/scalar_cost.h"

namespace tilewright {

double operation_cost(ScalarOp op) {
    switch (op) {
        case ScalarOp::Const:
        case ScalarOp::Access:
        case ScalarOp::Acc:
        case ScalarOp::Index:
        case ScalarOp::Cast:
            return 0;
        case ScalarOp::Div:
        case ScalarOp::Sqrt:
            return 8;
        case ScalarOp::Exp:
        case ScalarOp::Log:
        case ScalarOp::Log1p:
        case ScalarOp::Expm1:
            return 12;
        case ScalarOp::Tanh:
        case ScalarOp::Erf:
        case ScalarOp::Sinh:
        case ScalarOp::Cosh:
            return 24;
        case ScalarOp::Pow:
        case ScalarOp::Sin:
        case ScalarOp::Cos:
        case ScalarOp::Tan:
        case ScalarOp::Asin:
        case ScalarOp::Acos:
        case ScalarOp::Atan:
        case ScalarOp::Asinh:
        case ScalarOp::Acosh:
        case ScalarOp::Atanh:
            return 40;
        default:
            return 1;
    }
}

double body_operations(const ScalarBody& body, const std::vector<double>* share) {
    double n = 0;
    for (const ScalarId id : body.nodes().ids())
        n += operation_cost(body[id].op) * (share != nullptr ? (*share)[id.index()] : 1);
    return n;
}

}  // namespace tilewright
