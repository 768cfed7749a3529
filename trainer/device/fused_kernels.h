// Kernels of a device for operations that take LibTorch's operators several passes over memory.
// trainer/cuda/ implements them; without them, LibTorch's operators are used.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <functional>
#include <memory>

namespace dslaunch {

// May be called on any thread. Tensors are contiguous and on the device. Two-dimensional tensors
// are [rows, columns] in fp32, fp16 or bf16, and sums are accumulated in fp32. No call waits for
// the device, and equal inputs give equal bits. Throws c10::Error if a kernel cannot be started.
class FusedKernels {
 public:
  virtual ~FusedKernels() = default;

  struct RowLosses {
    at::Tensor losses;    // fp32 [rows]; 0 without a target, NaN if the target is out of range
    at::Tensor log_sums;  // fp32 [rows]: log(sum of exp(logits))
  };
  // `targets`: int64 [rows]; -100 is ignored.
  virtual RowLosses CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) = 0;
  // Returns the gradient of sum(losses x scales) by the logits, in their type. `scales`: fp32
  // [rows].
  virtual at::Tensor CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                          const at::Tensor& log_sums, const at::Tensor& scales) = 0;

  virtual at::Tensor SumRows(const at::Tensor& rows) = 0;  // [columns], in the type of `rows`

  // Returns the tanh-approximated GELU of all elements (Hendrycks and Gimpel 2016, section 2).
  virtual at::Tensor Gelu(const at::Tensor& x) = 0;

  struct RowsAndSums {
    at::Tensor rows;
    at::Tensor sums;  // SumRows(rows)
  };
  // Returns the gradient by x; `gradient` is the gradient by Gelu(x).
  virtual RowsAndSums GradientOfGelu(const at::Tensor& gradient, const at::Tensor& x) = 0;
  // Joins three matrices of one size side by side.
  virtual RowsAndSums JoinThirds(const std::array<at::Tensor, 3>& thirds) = 0;

  // Returns whether the two functions below support `rows`, whose columns must fit in registers.
  virtual bool HasLayerNorm(const at::Tensor& rows) const = 0;
  struct Normalized {
    at::Tensor sums;                       // x + branch, rounded; x without a branch
    at::Tensor normalized;                 // layer normalization of `sums`
    at::Tensor means, inverse_deviations;  // fp32 [rows]
  };
  // `branch` may be undefined. `weight` and `bias` have the type of x.
  virtual Normalized LayerNorm(const at::Tensor& x, const at::Tensor& branch,
                               const at::Tensor& weight, const at::Tensor& bias,
                               double epsilon) = 0;
  struct LayerNormGradients {
    at::Tensor x;             // also the gradient of `branch`
    at::Tensor weight, bias;  // [columns], in the type of x
  };
  // `forward` is LayerNorm's result, `gradient` the gradient of its `normalized`, and
  // `sum_gradient` the gradient of its `sums`, which may be undefined.
  virtual LayerNormGradients GradientsOfLayerNorm(const at::Tensor& gradient,
                                                  const at::Tensor& sum_gradient,
                                                  const Normalized& forward,
                                                  const at::Tensor& weight) = 0;

  // Returns whether the two functions below support `rows`.
  virtual bool HasRmsNorm(const at::Tensor& rows) const = 0;
  struct RmsNormalized {
    at::Tensor sums;        // x + branch, rounded; x without a branch
    at::Tensor normalized;  // weight * (sums / root mean square), the quotient rounded
    at::Tensor inverses;    // fp32 [rows]: 1 / root mean square
  };
  // `branch` may be undefined. `weight` has the type of x.
  virtual RmsNormalized RmsNorm(const at::Tensor& x, const at::Tensor& branch,
                                const at::Tensor& weight, double epsilon) = 0;
  struct RmsNormGradients {
    at::Tensor x;       // also the gradient of `branch`
    at::Tensor weight;  // [columns], in the type of x
  };
  // See GradientsOfLayerNorm; `normalized` of `forward` is not read.
  virtual RmsNormGradients GradientsOfRmsNorm(const at::Tensor& gradient,
                                              const at::Tensor& sum_gradient,
                                              const RmsNormalized& forward,
                                              const at::Tensor& weight) = 0;

  // Returns x [..., heads, width] with the halves (a, b) of each head turned into
  // (a cos - b sin, b cos + a sin), or turned back if `direction` is -1. cosines, sines:
  // [positions, width / 2] in x's type, for consecutive positions of x, and again from the first.
  virtual at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines,
                            double direction) = 0;

  // Returns gate * logistic(gate) * up of tensors of one shape.
  virtual at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) = 0;
  struct SwiGluInputs {
    at::Tensor gate, up;
  };
  // Returns the gradients by the inputs; `gradient` is the gradient by the result.
  virtual SwiGluInputs GradientsOfSwiGlu(const at::Tensor& gradient, const at::Tensor& gate,
                                         const at::Tensor& up) = 0;
};

// Starts compiling the kernels of `device` by `make`, on a separate thread because it takes time.
// If `make` throws, a line reports why (if `reports_error`), and no kernels are used. Call it once,
// before the first use.
void StartFusedKernels(c10::Device device, bool reports_error,
                       std::function<std::unique_ptr<FusedKernels>()> make);

// Returns the kernels that support `rows`, after waiting until they are compiled; null if
// LibTorch's operators must be used. May be called on any thread.
FusedKernels* FusedKernelsFor(const at::Tensor& rows);

}  // namespace dslaunch
