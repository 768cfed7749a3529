// Floating point operations of the operators that matter, from the shapes of their tensors. Pure.
//
// A multiplication and its addition count as two. Matrix products: 2 n k m. Convolutions: each
// element of the output (of a transposed one, of the input) is one product with a filter.
// Attention: the two matrix products, without a saving for a causal mask, as PaLM
// (arXiv:2204.02311, appendix B) and torch.utils.flop_counter count. Everything else counts as
// nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dslaunch {

using Shape = std::vector<int64_t>;

// What a call of an operator was given and returned. Arguments that are no tensors have the shape
// {}; `transposed` is of convolutions only.
struct OperatorCall {
  std::vector<Shape> inputs;
  Shape output;
  bool transposed = false;
};

// Whether the operator has a formula. `name` is as the dispatcher has it: "aten::addmm".
bool HasFlopFormula(std::string_view name);

// 0 without a formula, and for shapes that do not fit it.
double OperatorFlops(std::string_view name, const OperatorCall& call);

// Of a training step whose forward pass takes `forward`: the backward pass takes twice as much
// (PaLM, appendix B), and what is recomputed does not count.
inline double TrainingFlops(double forward) { return 3 * forward; }

}  // namespace dslaunch
