// ZeRO stages 1 to 3: each rank holds a part of the model's states.
#pragma once

#include <c10/core/Stream.h>

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/shard_exchange.h"
#include "trainer/parallel/zero/file_tensors.h"
#include "trainer/parallel/zero/flat_parameter.h"
#include "trainer/parallel/zero/parameter_gatherer.h"
#include "trainer/parallel/zero/unit_gradients.h"

namespace dslaunch {

// The parameters of a unit (flat_parameter.h) lie one after the other in one flat tensor, of which
// each rank's optimizer updates a part.
//
// Gradients: as soon as a backward pass has one, it is moved into its unit's flat gradient
// (UnitGradients) and freed. At stage 1 that accumulates over the micro-batches of a step, and is
// reduced on the last one. At stages 2 and 3 it is reduced in every micro-batch, and only this
// rank's part of the sum accumulates.
//
// Over batches (Passes::kBatches) gradients accumulate whole and are reduced once a step at stages
// 2 and 3 too; what is whole is freed as soon as it is reduced, until the next batch. (Reduced in
// every micro-batch, they would travel as often, and while other stages wait.)
//
// Parameters: after the optimizer's step the ranks' parts are gathered again; at stage 3 only those
// of persistent units, for ParameterGatherer gathers the others when they are read. On a device
// nothing waits for them but the operations of the next pass that read them.
class ShardedStates : public ModelStates {
 public:
  // `deferred`: at stage 3 the tensors that still need their values and casts; null: no tensors. At
  // stage 3 parameters may lie elsewhere than on the ranks' device, where only parts of them go.
  ShardedStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
                Passes passes, InitRecording* deferred);

  void Begin(Pass pass) override;
  void BeforeBackward(bool last) override;
  void AfterBackward() override;
  void End() override;
  bool sharded() const override { return true; }
  ZerosBeside StateZeros() const override;
  std::vector<at::Tensor> Gradients() override;
  void CopyMasterToModel() override;
  void Updated(size_t begin, size_t end) override;
  void Clear() override;
  void DropGradients() override;
  void GiveUp() override;
  void Unshard(const std::vector<at::Tensor>& parameters) override;
  void Reshard(const std::vector<at::Tensor>& parameters,
               std::optional<int> modifier_rank) override;
  MemoryUse memory() const override;
  int64_t live_bucket_bytes() const override { return gradients_.live_bytes(); }
  std::vector<TensorPart> Frozen() const override;

 private:
  struct Unit {
    FlatParameter layout;
    size_t gathered_index = 0;  // the unit's index in ParameterGatherer, if it is there
    at::Tensor flat;     // [ranks * n], model dtype: the parameters; at stage 3 ParameterGatherer's
    at::Tensor shard;    // [n]: this rank's part of it; has its own memory if flat's is released
    at::Tensor weights;  // [n]: updated by the optimizer: fp32 masters, or `shard`
    size_t gradients = 0;  // the unit's number in `gradients_`, if it is trained
    size_t parts = 0;      // parts() in `weights`
    size_t updated = 0;    // those that are updated in this step

    // Whether the weights are offloaded from a device, so that updated ones are copied back.
    bool returns() const {
      return layout.trained && weights.is_cpu() && !flat.is_cpu() && !weights.is_same(shard);
    }
  };
  static constexpr size_t kNoUnit = std::numeric_limits<size_t>::max();
  struct Place {
    size_t unit = kNoUnit;
    int64_t offset = 0;  // in the flat tensor
  };

  void MakeUnits(const TensorDtypes& dtypes, const std::vector<TiedGroup>& tied);
  void MakeWeights(bool master_weights);
  void MakeGatherer();
  void TakeFromModel();
  void TakeFrom(InitRecording& deferred, const TensorDtypes& dtypes);
  void Take(size_t parameter, const at::Tensor& values);
  const Unit* UnitOf(const at::Tensor& parameter) const;
  std::vector<size_t> ReleasedUnits(const std::vector<at::Tensor>& parameters) const;
  void Accumulate(size_t parameter);  // the hook
  at::Tensor GradientPlace(size_t parameter);
  void AwaitShardReads() const;
  void FillUnused();

  const ProcessGroup& group_;
  const std::vector<NamedTensor> buffers_;
  const ZeroConfig zero_;
  const std::optional<FileTensors> parameter_files_, optimizer_files_;  // offloaded to NVMe
  const bool accumulates_whole_;
  const GradSyncOptions options_;
  const ShardExchange exchange_;
  UnitGradients gradients_;
  const bool refreshes_late_;            // persistent units are awaited when they are read
  std::vector<NamedTensor> parameters_;  // all parameters of the module
  std::vector<int64_t> elements_;        // number of elements of each parameter
  std::vector<Place> places_;            // place of each parameter in a unit's flat tensor
  std::vector<bool> has_gradient_;  // parameters with a gradient in this step, if accumulated whole
  std::vector<Unit> units_;
  std::vector<size_t> trained_;         // indices of trained parameters
  std::vector<Place> gradient_places_;  // place of each part in this rank's part of the unit
  std::optional<ParameterGatherer> gatherer_;

  std::optional<c10::Stream> return_stream_;  // copies offloaded weights beside arriving gradients
  bool is_returned_ = false;                  // Updated has begun the copies of all weights
  bool infers_ = false;                       // an inference pass is open
  Pass pass_ = Pass::kInference;              // the training pass that is open
  bool sends_ = false;                        // gradients of this backward pass are sent
  std::optional<GradientArrivals> arrivals_;  // last: its hooks use the rest
};

}  // namespace dslaunch
