// Ranks that hold all of the model's states, as at ZeRO stage 0, and exchange less than every
// gradient of every step: LocalSGD, DiLoCo, PowerSGD, and 1-bit optimizers, which exchange on their
// own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/parallel/exchange/outer_step.h"
#include "trainer/parallel/exchange/power_sgd.h"
#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/gradient_scale.h"
#include "trainer/parallel/master_weights.h"
#include "trainer/parallel/model_states.h"

namespace dslaunch {

// Gradients of micro-batches add up on each rank; what is exchanged of them is after the last one.
class LocalStates : public ModelStates {
 public:
  LocalStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
              Passes passes);

  void Begin(Pass pass) override;
  void BeforeBackward(bool last) override { local_->BeforeBackward(last); }
  void AfterBackward() override { local_->AfterBackward(); }
  void End() override;
  const std::vector<WeightPart>& parts() const override { return parts_; }
  bool sharded() const override { return false; }
  std::vector<at::Tensor> Gradients() override { return gradients_; }
  bool gradients_are_own() const override { return own_; }
  void ReduceWhen(std::function<bool()> reduces) override { reduces_ = std::move(reduces); }
  void CopyMasterToModel() override { masters_.CopyToModel(); }
  void Clear() override;
  void DropGradients() override;
  void GiveUp() override;
  void Unshard(const std::vector<at::Tensor>&) override {}
  void Reshard(const std::vector<at::Tensor>& parameters,
               std::optional<int> modifier_rank) override;
  MemoryUse memory() const override;
  int64_t live_bucket_bytes() const override { return 0; }
  std::vector<TensorPart> Frozen() const override;
  std::vector<RankTensor> RankTensors() const override;
  void SetSteps(int64_t steps) override { steps_ = steps; }
  void Restart() override;

 private:
  torch::nn::Module& module_;
  const ProcessGroup& group_;
  const ProcessGroup self_;  // this rank alone
  const GradSyncOptions options_;
  const std::vector<NamedTensor> parameters_;  // those that are trained
  const std::vector<at::Tensor> buffers_;      // that become rank 0's
  std::unique_ptr<GradSync> local_;            // after the ranks' parameters are the same
  MasterWeights masters_;
  std::vector<WeightPart> parts_;
  std::optional<OuterStep> outer_;
  std::optional<PowerSgd> power_sgd_;
  std::function<bool()> reduces_;  // whether this step's gradients are to be all ranks'
  std::vector<at::Tensor> gradients_;
  bool own_ = false;  // gradients_ are this rank's
  Pass pass_ = Pass::kInference;
  int64_t steps_ = 0;  // that are over
};

}  // namespace dslaunch
