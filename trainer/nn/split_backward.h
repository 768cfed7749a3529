// Weight gradients that are computed later, on request (zero bubble: Qi et al. 2023, section 3.1).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <array>
#include <memory>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace dslaunch {

// The weight gradients of backward passes, each of which still is to be computed and added to its
// parameter's gradient, as autograd would have done, hooks of GradSync included.
class WeightGradients {
 public:
  bool empty() const { return work_.empty(); }
  void Add(std::shared_ptr<torch::autograd::Node> work);  // for the functions below

  // All, as one more backward pass, in the order of those that put them off; frees what they held.
  // A parameter that several of them are of gets their sum, and its hooks run once.
  void Compute();

 private:
  std::vector<std::shared_ptr<torch::autograd::Node>> work_;
};

// While it lives, backward passes that this thread begins put off the gradients of the weights and
// biases of the functions below; those of all others come as ever.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(WeightGradients& into);
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

// at::linear: x [..., in], weight [out, in], bias [out] or undefined. Same values, bit for bit, as
// at::linear's, forward and backward. Weight and bias must be parameters (leaves), or need no
// gradient; for others, and under autocast, it is at::linear.
at::Tensor ApplyLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// x [..., in], weight [in, out]: GPT-2's linear layer; in fp32 on the CPU by oneDNN.
at::Tensor ApplyConv1D(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// GELU of it, by its tanh approximation, and its columns in three equal parts: q, k and v. On a
// device with kernels of its own (trainer/device/fused_kernels.h) the bias' gradient comes out of
// the pass that makes the product's, and there are no second derivatives.
at::Tensor ApplyConv1DAndGelu(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias);
std::array<at::Tensor, 3> ApplyConv1DInThirds(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias);

}  // namespace dslaunch
