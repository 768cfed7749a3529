// Kernels of a device for what takes LibTorch's operators several passes over its memory.
// trainer/cuda/ implements them; where there are none, LibTorch's operators do the same.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <functional>
#include <memory>

namespace dslaunch {

// Any thread. Tensors are contiguous and on the device, those of two dimensions are [rows, columns]
// in fp32, fp16 or bf16, and what is added up is added up in fp32. No call waits for the device,
// and the same inputs give the same bits. What cannot be started throws c10::Error.
class FusedKernels {
 public:
  virtual ~FusedKernels() = default;

  struct RowLosses {
    at::Tensor losses;    // fp32 [rows]; 0 without a target, NaN where the target is no column
    at::Tensor log_sums;  // fp32 [rows]: log(sum of exp(logits))
  };
  // `targets`: int64 [rows], -100 for none.
  virtual RowLosses CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) = 0;
  // The gradient of sum(losses x scales) by the logits, in their type. `scales`: fp32 [rows].
  virtual at::Tensor CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                          const at::Tensor& log_sums, const at::Tensor& scales) = 0;

  virtual at::Tensor SumRows(const at::Tensor& rows) = 0;  // [columns], in the type of `rows`

  // GELU of all elements by its tanh approximation (Hendrycks and Gimpel 2016, section 2).
  virtual at::Tensor Gelu(const at::Tensor& x) = 0;

  struct RowsAndSums {
    at::Tensor rows;
    at::Tensor sums;  // SumRows(rows)
  };
  // The gradient by x, from that of Gelu(x).
  virtual RowsAndSums GradientOfGelu(const at::Tensor& gradient, const at::Tensor& x) = 0;
  // Three matrices of one size, side by side.
  virtual RowsAndSums JoinThirds(const std::array<at::Tensor, 3>& thirds) = 0;

  // Whether the two below are there for `rows`, whose columns must be few enough for registers.
  virtual bool HasLayerNorm(const at::Tensor& rows) const = 0;
  struct Normalized {
    at::Tensor sums;                       // x + branch, rounded; x where there is no branch
    at::Tensor normalized;                 // of sums
    at::Tensor means, inverse_deviations;  // fp32 [rows]
  };
  // `branch` may be undefined. `weight` and `bias` have the type of x.
  virtual Normalized LayerNorm(const at::Tensor& x, const at::Tensor& branch,
                               const at::Tensor& weight, const at::Tensor& bias,
                               double epsilon) = 0;
  struct LayerNormGradients {
    at::Tensor x;             // which is that of the branch too
    at::Tensor weight, bias;  // [columns], in the type of x
  };
  // Of `normalized`, by what LayerNorm returned, and of `sums`, which may be undefined.
  virtual LayerNormGradients GradientsOfLayerNorm(const at::Tensor& gradient,
                                                  const at::Tensor& sum_gradient,
                                                  const Normalized& forward,
                                                  const at::Tensor& weight) = 0;
};

// Those of `device`. `make` runs in a thread of its own, since it compiles. If it throws, a line
// says why, where `says_why`, and there are no kernels. Once, before the first use.
void StartFusedKernels(c10::Device device, bool says_why,
                       std::function<std::unique_ptr<FusedKernels>()> make);

// Those that compute with `rows`; null: LibTorch's operators are to be used. Waits until they are
// compiled. Any thread.
FusedKernels* FusedKernelsFor(const at::Tensor& rows);

}  // namespace dslaunch
