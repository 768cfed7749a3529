// Declares fused kernels of a device, for operations that need several passes over memory with
// LibTorch's operators. trainer/cuda/ implements them. Without the kernels, LibTorch's operators
// are used.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <functional>
#include <memory>

namespace dslaunch {

// Runs the kernels of a device. Tensors must be contiguous and on the device. Two-dimensional
// tensors are [rows, columns] in fp32, fp16 or bf16, and sums are accumulated in fp32. No function
// waits for the device. Equal inputs give bitwise equal results. Throws c10::Error if a kernel
// cannot be started. Thread-safe.
class FusedKernels {
 public:
  virtual ~FusedKernels() = default;

  struct RowLosses {
    // Loss of each row, fp32 [rows]; 0 for a row without a target, NaN if the target is out of
    // range.
    at::Tensor losses;
    at::Tensor log_sums;  // fp32 [rows]: log(sum of exp(logits))
  };
  // Returns the losses of `logits`. `targets` is int64 [rows]; the target -100 is ignored.
  virtual RowLosses CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) = 0;
  // Returns the gradient of sum(losses * scales) with respect to the logits, in their dtype.
  // `scales` is fp32 [rows].
  virtual at::Tensor CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                          const at::Tensor& log_sums, const at::Tensor& scales) = 0;

  // Returns the sum of the rows, [columns], in the dtype of `rows`.
  virtual at::Tensor SumRows(const at::Tensor& rows) = 0;

  // Returns GELU of each element, approximated by tanh (Hendrycks and Gimpel 2016, section 2).
  virtual at::Tensor Gelu(const at::Tensor& x) = 0;

  struct RowsAndSums {
    at::Tensor rows;
    at::Tensor sums;  // sum of the rows, as SumRows(rows) returns it
  };
  // Returns the gradient with respect to x. `gradient` is the gradient with respect to Gelu(x).
  virtual RowsAndSums GradientOfGelu(const at::Tensor& gradient, const at::Tensor& x) = 0;
  // Concatenates the columns of three matrices of equal size.
  virtual RowsAndSums JoinThirds(const std::array<at::Tensor, 3>& thirds) = 0;

  // Returns whether the two functions below support `rows`. A row must fit in registers.
  virtual bool HasLayerNorm(const at::Tensor& rows) const = 0;
  struct Normalized {
    at::Tensor sums;        // x + branch, rounded to the dtype of `x`; x if there is no branch
    at::Tensor normalized;  // layer normalization of `sums`
    at::Tensor means, inverse_deviations;  // statistics of each row, fp32 [rows]
  };
  // Normalizes each row of x + branch. `branch` may be undefined. `weight` and `bias` have the
  // dtype of `x`.
  virtual Normalized LayerNorm(const at::Tensor& x, const at::Tensor& branch,
                               const at::Tensor& weight, const at::Tensor& bias,
                               double epsilon) = 0;
  struct LayerNormGradients {
    at::Tensor x;  // gradient with respect to both `x` and `branch`
    // Gradients with respect to `weight` and `bias`, [columns] in the dtype of `x`.
    at::Tensor weight, bias;
  };
  // Returns the gradients with respect to LayerNorm's arguments. `forward` is LayerNorm's result.
  // `gradient` is the gradient with respect to `normalized` of that result, and `sum_gradient`,
  // which may be undefined, is the gradient with respect to `sums`.
  virtual LayerNormGradients GradientsOfLayerNorm(const at::Tensor& gradient,
                                                  const at::Tensor& sum_gradient,
                                                  const Normalized& forward,
                                                  const at::Tensor& weight) = 0;

  // Returns whether the two functions below support `rows`.
  virtual bool HasRmsNorm(const at::Tensor& rows) const = 0;
  struct RmsNormalized {
    at::Tensor sums;        // x + branch, rounded to the dtype of `x`; x if there is no branch
    at::Tensor normalized;  // weight * (sums / root mean square); the quotient is rounded
    at::Tensor inverses;    // 1 / root mean square of each row, fp32 [rows]
  };
  // Normalizes each row of x + branch. `branch` may be undefined. `weight` has the dtype of `x`.
  virtual RmsNormalized RmsNorm(const at::Tensor& x, const at::Tensor& branch,
                                const at::Tensor& weight, double epsilon) = 0;
  struct RmsNormGradients {
    at::Tensor x;       // gradient with respect to both `x` and `branch`
    at::Tensor weight;  // gradient with respect to `weight`, [columns] in the dtype of `x`
  };
  // Returns the gradients with respect to RmsNorm's arguments, like GradientsOfLayerNorm, but does
  // not read `forward.normalized`.
  virtual RmsNormGradients GradientsOfRmsNorm(const at::Tensor& gradient,
                                              const at::Tensor& sum_gradient,
                                              const RmsNormalized& forward,
                                              const at::Tensor& weight) = 0;

  // Returns x [..., heads, width] with the halves (a, b) of each head rotated to (a cos - b sin, b
  // cos + a sin), or rotated back if `direction` is -1. `cosines` and `sines` are [positions, width
  // / 2] in the dtype of `x`. They apply to consecutive positions of `x`, and repeat from the first
  // position.
  virtual at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines,
                            double direction) = 0;

  // Returns gate * logistic(gate) * up. The tensors have the same shape.
  virtual at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) = 0;
  struct SwiGluInputs {
    at::Tensor gate, up;
  };
  // Returns the gradients with respect to the inputs of SwiGlu. `gradient` is the gradient with
  // respect to the result of SwiGlu.
  virtual SwiGluInputs GradientsOfSwiGlu(const at::Tensor& gradient, const at::Tensor& gate,
                                         const at::Tensor& up) = 0;
};

// Starts a thread on which `make` compiles the kernels of `device`, which takes time. If `make`
// throws c10::Error, no kernels are used, and a line reports the reason if `reports_error`. Call it
// once, before the first use of the kernels.
void StartFusedKernels(c10::Device device, bool reports_error,
                       std::function<std::unique_ptr<FusedKernels>()> make);

// Waits until the kernels are compiled, and returns them if they support `rows`; null if LibTorch's
// operators must be used. Thread-safe.
FusedKernels* FusedKernelsFor(const at::Tensor& rows);

}  // namespace dslaunch
