// Implements a GradSync that sums gradients over the micro-batches of one rank. A GradientExchange
// may reduce them over the ranks.
#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/exchange/gradient_exchange.h"
#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

class OwnGradSync : public GradSync {
 public:
  // Copies rank 0's parameters and buffers to all ranks of `group`, which must outlive this object.
  // Throws TrainError on all ranks if their models differ, or if they have no parameters and
  // options.batches is false. `options` apply to gradients that all ranks reduce.
  OwnGradSync(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
              const std::vector<at::Tensor>& buffers, const GradSyncOptions& options);

  // Makes End pass the gradients of a pass with `sync` to `exchange`, unless a gradient is
  // undefined. `exchange` must outlive all passes.
  void ReduceBy(GradientExchange& exchange) { exchange_ = &exchange; }
  // Returns the group that consists of this rank only.
  ProcessGroup& self() { return self_; }

  void Begin(bool sync) override;
  void BeforeBackward(bool last) override { local_->BeforeBackward(last); }
  void AfterBackward() override { local_->AfterBackward(); }
  void End() override;
  std::vector<at::Tensor> Gradients() override { return local_->Gradients(); }
  void Clear() override { local_->Clear(); }
  void DropGradients() override { local_->DropGradients(); }
  void GiveUp() override { local_->GiveUp(); }
  int64_t gradient_bytes() const override { return local_->gradient_bytes(); }
  int64_t bucket_bytes() const override { return local_->bucket_bytes(); }

 private:
  ProcessGroup self_;
  const std::unique_ptr<GradSync> local_;
  GradientExchange* exchange_ = nullptr;
  bool sync_ = false;  // true if this pass reduces gradients
};

}  // namespace dslaunch
