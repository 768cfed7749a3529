// A GradSync that adds gradients up over the micro-batches of one rank; another class may reduce
// them over the ranks.
#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/exchange/gradient_exchange.h"
#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

class OwnGradSync : public GradSync {
 public:
  // Copies rank 0's parameters and buffers to all ranks of `group`, which must outlive this. Throws
  // TrainError on all of them if their models differ, or if they have no parameters and
  // options.batches is false. `options` apply to gradients that all ranks reduce.
  OwnGradSync(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
              const std::vector<at::Tensor>& buffers, const GradSyncOptions& options);

  // From now on End gives `exchange`, which must outlive all passes, the gradients of a pass with
  // `sync`, unless one is undefined.
  void ReduceBy(GradientExchange& exchange) { exchange_ = &exchange; }
  // The group that has this rank only.
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
  bool sync_ = false;  // whether this pass reduces gradients
};

}  // namespace dslaunch
