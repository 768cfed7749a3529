// Counts floating-point operations of the significant operators from the shapes of their tensors.
// Pure.
//
// A multiplication and its addition count as two operations. Matrix products: 2 n k m.
// Convolutions: each element of the output (of the input, if transposed) is one product with a
// filter. Attention: the two matrix products, without savings for a causal mask, as counted by PaLM
// (arXiv:2204.02311, appendix B) and torch.utils.flop_counter. All other operators count as 0.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dslaunch {

using Shape = std::vector<int64_t>;

// The shapes of an operator's arguments and result. An argument that is not a tensor has the shape
// {}. `transposed` is used only for convolutions.
struct OperatorCall {
  std::vector<Shape> inputs;
  Shape output;
  bool transposed = false;
};

// Returns whether the operator has a formula. `name` is the dispatcher's name, such as
// "aten::addmm".
bool HasFlopFormula(std::string_view name);

// Returns the operations of a call; 0 for operators without a formula, and for shapes that the
// formula does not accept.
double OperatorFlops(std::string_view name, const OperatorCall& call);

// Returns the operations of a training step whose forward pass has `forward` operations. The
// backward pass has twice as many (PaLM, appendix B), and recomputation does not count.
inline double TrainingFlops(double forward) { return 3 * forward; }

}  // namespace dslaunch
