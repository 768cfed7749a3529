// Implements ZeRO stage 0: every rank holds all model states. A GradSync reduces the ranks'
// gradients.
#pragma once

#include <memory>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/config/engine_config.h"
#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/master_weights.h"
#include "trainer/parallel/model_states.h"

namespace dslaunch {

class ReplicatedStates : public ModelStates {
 public:
  // Precondition: `grad_sync` is for the trained parameters of `module`, and has made them equal on
  // all ranks of `replicas`.
  ReplicatedStates(const EngineConfig& config, torch::nn::Module& module,
                   const ProcessGroup& replicas, std::unique_ptr<GradSync> grad_sync);

  void Begin(Pass pass) override;
  void BeforeBackward(bool last) override { grad_sync_->BeforeBackward(last); }
  void AfterBackward() override { grad_sync_->AfterBackward(); }
  void End() override;
  bool sharded() const override { return false; }
  std::vector<at::Tensor> Gradients() override { return grad_sync_->Gradients(); }
  void CopyMasterToModel() override { masters_.CopyToModel(); }
  void Clear() override { grad_sync_->Clear(); }
  void DropGradients() override { grad_sync_->DropGradients(); }
  void GiveUp() override;
  void Unshard(const std::vector<at::Tensor>&) override {}
  void Reshard(const std::vector<at::Tensor>& parameters,
               std::optional<int> modifier_rank) override;
  MemoryUse memory() const override;
  int64_t live_bucket_bytes() const override { return grad_sync_->bucket_bytes(); }
  std::vector<TensorPart> Frozen() const override;

 private:
  torch::nn::Module& module_;
  const ProcessGroup& group_;
  const std::unique_ptr<GradSync> grad_sync_;
  MasterWeights masters_;
  bool trains_ = false;  // true during a training pass
};

}  // namespace dslaunch
