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

// The weight gradients that backward passes have deferred. Each is still to be computed and added
// to its parameter's gradient as autograd would do, including the hooks of GradSync.
class WeightGradients {
 public:
  bool empty() const { return work_.empty(); }
  void Add(std::shared_ptr<torch::autograd::Node> work);  // called by the functions below

  // Computes all gradients as one more backward pass, in the order in which they were deferred, and
  // frees what they held. A parameter with several gradients gets their sum, and its hooks run
  // once.
  void Compute();

 private:
  std::vector<std::shared_ptr<torch::autograd::Node>> work_;
};

// While it exists, backward passes begun by this thread defer the gradients of the weights and
// biases of the functions below; all other gradients are computed as usual.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(WeightGradients& into);
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

// Computes at::linear for x [..., in], weight [out, in], and bias [out] or undefined, with the same
// values, bit for bit, forward and backward. Defers only if weight and bias are parameters (leaves)
// or need no gradient; otherwise, and under autocast, it calls at::linear.
at::Tensor ApplyLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// Computes a linear layer, x [..., in] times weight [in, out] plus bias; in fp32 on the CPU
// by oneDNN.
at::Tensor ApplyConv1D(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Return the tanh-approximated GELU of ApplyConv1D, and its columns in three equal parts: q, k and
// v. On a device with fused kernels (trainer/device/fused_kernels.h) the bias' gradient is computed
// in the same pass as the product's, and second derivatives are not available.
at::Tensor ApplyConv1DAndGelu(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias);
std::array<at::Tensor, 3> ApplyConv1DInThirds(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias);

}  // namespace dslaunch
