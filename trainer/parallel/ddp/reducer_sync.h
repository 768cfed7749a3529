// Implements data parallelism by c10d::Reducer, which PyTorch's DistributedDataParallel uses.
#pragma once

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/gradient_arrivals.h"

namespace dslaunch {

// Reduces gradients with c10d::Reducer. Gradients accumulate in each parameter's .grad(), which is
// a view of the reducer's bucket after a pass with `sync`. All parameters must have the dtype
// accumulation_dtype. Does not support GradSyncOptions::batches.
class ReducerSync : public GradSync {
 public:
  ReducerSync(const ProcessGroup& group, std::vector<NamedTensor> parameters,
              std::vector<at::Tensor> buffers, const GradSyncOptions& options);

  void Begin(bool sync) override;
  void BeforeBackward(bool last) override;
  void AfterBackward() override;  // called after the backward pass has waited for the sums
  void End() override {}
  std::vector<at::Tensor> Gradients() override;
  void Clear() override;
  void DropGradients() override;
  void GiveUp() override;
  int64_t gradient_bytes() const override;
  int64_t bucket_bytes() const override;

 private:
  class ScaledSum;

  // Gives every parameter that got no gradient in the last backward pass a gradient filled with
  // `value`, which completes the exchange. All ranks take part in the exchange.
  void Supply(double value);

  const ProcessGroup& group_;
  const std::vector<NamedTensor> parameters_;
  const std::vector<at::Tensor> buffers_;
  const GradSyncOptions options_;
  GradientArrivals arrivals_;
  std::unique_ptr<c10d::Reducer> reducer_;
  ScaledSum* sum_ = nullptr;  // communication hook, owned by the reducer
  bool reduces_ = false;      // true from the last backward pass until its sums are complete
  bool accumulates_ = false;  // true if gradients add up over several micro-batches
};

}  // namespace dslaunch
