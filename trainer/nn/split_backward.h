// Defers the computation of weight gradients (zero bubble: Qi et al. 2023, section 3.1).
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

// Collects the weight gradients that backward passes have deferred. Compute() adds each to its
// parameter's gradient like autograd, including the hooks of GradSync.
class WeightGradients {
 public:
  bool empty() const { return work_.empty(); }
  // Adds a deferred gradient. Called by backward passes of the functions below.
  void Add(std::shared_ptr<torch::autograd::Node> work);

  // Computes all deferred gradients in one more backward pass, in the order in which they were
  // deferred, and frees their memory. A parameter with several gradients gets their sum, and its
  // hooks run once.
  void Compute();

 private:
  std::vector<std::shared_ptr<torch::autograd::Node>> work_;
};

// Makes backward passes that this thread begins during the object's lifetime defer the gradients of
// the weights and biases of the functions below. All other gradients are computed as usual.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(WeightGradients& into);
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

// Computes at::linear for x [..., in], weight [out, in], and bias [out] or undefined. Forward and
// backward values are bitwise equal to at::linear's. Gradients can be deferred only if weight and
// bias are parameters (leaves) or need no gradient; otherwise, and under autocast, it calls
// at::linear.
at::Tensor ApplyLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// Returns x [..., in] times weight [in, out] plus bias [out]. Uses oneDNN in fp32 on the CPU.
at::Tensor ApplyConv1D(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Returns the tanh-approximated GELU of ApplyConv1D(x, weight, bias). On a device with fused
// kernels (trainer/device/fused_kernels.h), the gradient of the bias is computed in the same pass
// as the gradient of the product, and second derivatives are not available.
at::Tensor ApplyConv1DAndGelu(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias);
// Returns the columns of ApplyConv1D(x, weight, bias) in three equal parts: q, k and v. Fused
// kernels have the effects that ApplyConv1DAndGelu describes.
std::array<at::Tensor, 3> ApplyConv1DInThirds(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias);

}  // namespace dslaunch
