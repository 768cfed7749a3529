// Determines the grids and arguments of the kernels in this folder. Does not use CUDA, so that a
// test can run the kernels on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {

// Identifies a kernel for a certain type of element.
struct KernelVersion {
  const char* name = "";  // name in the sources without the type, such as "gelu"
  at::ScalarType type = at::kFloat;
  // Number of columns. Only normalizations, which are compiled for a number of columns and warps,
  // set it.
  int64_t columns = 0;
  int64_t row_warps = 0;  // number of warps that process each row
};

// Dimensions of a grid of blocks, or of a block of threads.
struct KernelGrid {
  unsigned x = 1, y = 1;
};

class KernelCalls : public FusedKernels {
 public:
  // Creates calls for a device with `processors` multiprocessors.
  explicit KernelCalls(int64_t processors) : processors_(processors) {}

  RowLosses CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) override;
  at::Tensor CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                  const at::Tensor& log_sums, const at::Tensor& scales) override;
  at::Tensor SumRows(const at::Tensor& rows) override;
  at::Tensor Gelu(const at::Tensor& x) override;
  RowsAndSums GradientOfGelu(const at::Tensor& gradient, const at::Tensor& x) override;
  RowsAndSums JoinThirds(const std::array<at::Tensor, 3>& thirds) override;
  bool HasLayerNorm(const at::Tensor& rows) const override;
  Normalized LayerNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                       const at::Tensor& bias, double epsilon) override;
  LayerNormGradients GradientsOfLayerNorm(const at::Tensor& gradient,
                                          const at::Tensor& sum_gradient, const Normalized& forward,
                                          const at::Tensor& weight) override;
  bool HasRmsNorm(const at::Tensor& rows) const override;
  RmsNormalized RmsNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                        double epsilon) override;
  RmsNormGradients GradientsOfRmsNorm(const at::Tensor& gradient, const at::Tensor& sum_gradient,
                                      const RmsNormalized& forward,
                                      const at::Tensor& weight) override;
  at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines,
                    double direction) override;
  at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) override;
  SwiGluInputs GradientsOfSwiGlu(const at::Tensor& gradient, const at::Tensor& gate,
                                 const at::Tensor& up) override;

 protected:
  // Starts a kernel on the current stream. `arguments` points to the values of its parameters,
  // which need not exist after the call.
  virtual void Launch(const KernelVersion& kernel, KernelGrid blocks, KernelGrid threads,
                      void** arguments) = 0;

 private:
  template <typename... Arguments>
  void Call(const KernelVersion& kernel, KernelGrid blocks, KernelGrid threads,
            Arguments... arguments) {
    std::array<void*, sizeof...(arguments)> pointers = {&arguments...};
    Launch(kernel, blocks, threads, pointers.data());
  }
  // Calls the kernel `name`, which computes `rows` from the inputs in `pointers`. Returns `rows`
  // and their sums.
  template <typename... Pointers>
  RowsAndSums WithSums(const at::Tensor& rows, bool wide, const char* name, Pointers... pointers);
  // Sums the rows of each matrix in `parts` [matrices, rows, columns]. Returns [matrices, columns]
  // in the dtype of `like`.
  at::Tensor Finish(const at::Tensor& parts, const at::Tensor& like);
  // Returns a grid over the columns (x) and over parts of the rows (y).
  KernelGrid ColumnGrid(const at::Tensor& rows, bool wide) const;

  const int64_t processors_;
};

}  // namespace dslaunch
