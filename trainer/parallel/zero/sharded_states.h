// Implements ZeRO stages 1 to 3: each rank holds a part of the model states.
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

// Holds this rank's part of the model states. The parameters of a unit (flat_parameter.h) are
// stored one after the other in one flat tensor, of which each rank's optimizer updates a part.
//
// Gradients: as soon as a backward pass has computed a gradient, it is moved into its unit's flat
// gradient (UnitGradients) and freed. At stage 1 the flat gradient accumulates over the
// micro-batches of a step and is reduced in the last one. At stages 2 and 3 it is reduced in every
// micro-batch, and only this rank's part of the sum accumulates.
//
// With Passes::kBatches, whole gradients accumulate and are reduced once per step at stages 2 and 3
// too. A whole gradient is freed as soon as it is reduced, until the next batch. (A reduction in
// every micro-batch would send more data, while other pipeline stages wait.)
//
// Parameters: after the optimizer's step the ranks' parts are gathered again. At stage 3 this
// applies only to persistent units, because ParameterGatherer gathers the other units when they are
// read. On a device only the operations of the next pass that read the parameters wait for them.
class ShardedStates : public ModelStates {
 public:
  // Shards the parameters of `module`. `deferred` is the recording of tensors that still need their
  // values and casts; null if the model was constructed normally. At stage 3 the parameters may be
  // on another device than the ranks' device, to which only this rank's parts are copied.
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
    size_t gathered_index = 0;  // index in ParameterGatherer, if the unit is gathered
    at::Tensor flat;            // parameters of the unit in the model's dtype, [ranks * n]
    at::Tensor shard;    // this rank's part of `flat`, [n]; separate memory if not persistent
    at::Tensor weights;  // tensor that the optimizer updates, [n]: fp32 master weights, or `shard`
    size_t gradients = 0;  // unit's number in `gradients_`, if the unit is trained
    size_t parts = 0;      // number of parts() in `weights`
    size_t updated = 0;    // number of these parts that were updated in this step

    // Returns whether updated weights must be copied to the device, because they are offloaded to
    // the CPU.
    bool returns() const {
      return layout.trained && weights.is_cpu() && !flat.is_cpu() && !weights.is_same(shard);
    }
  };
  static constexpr size_t kNoUnit = std::numeric_limits<size_t>::max();
  struct Place {
    size_t unit = kNoUnit;
    int64_t offset = 0;  // position in the flat tensor of the parameter's first element
  };

  void MakeUnits(const TensorDtypes& dtypes, const std::vector<TiedGroup>& tied);
  void MakeWeights(bool master_weights);
  void MakeGatherer();
  void TakeFromModel();
  void TakeFrom(InitRecording& deferred, const TensorDtypes& dtypes);
  void Take(size_t parameter, const at::Tensor& values);
  const Unit* UnitOf(const at::Tensor& parameter) const;
  std::vector<size_t> ReleasedUnits(const std::vector<at::Tensor>& parameters) const;
  void Accumulate(size_t parameter);  // called when a parameter's gradient arrives
  at::Tensor GradientPlace(size_t parameter);
  void AwaitShardReads() const;
  void FillUnused();

  const ProcessGroup& group_;
  const std::vector<NamedTensor> buffers_;
  const ZeroConfig zero_;
  // Files of states that are offloaded to NVMe.
  const std::optional<FileTensors> parameter_files_, optimizer_files_;
  const bool accumulates_whole_;
  const GradSyncOptions options_;
  const ShardExchange exchange_;
  UnitGradients gradients_;
  const bool refreshes_late_;  // true if persistent units are awaited only when they are read
  std::vector<NamedTensor> parameters_;  // all parameters of the module
  std::vector<int64_t> elements_;        // number of elements of each parameter
  std::vector<Place> places_;            // position of each parameter in a unit's flat tensor
  // By parameter: true if it got a gradient; used if accumulates_whole_.
  std::vector<bool> has_gradient_;
  std::vector<Unit> units_;
  std::vector<size_t> trained_;  // indices of trained parameters
  // Position of each of parts() in this rank's part of the unit.
  std::vector<Place> gradient_places_;
  std::optional<ParameterGatherer> gatherer_;

  // Stream that copies offloaded weights during the update.
  std::optional<c10::Stream> return_stream_;
  bool is_returned_ = false;      // true once Updated has begun the copies of all weights
  bool infers_ = false;           // true while an inference pass is open
  Pass pass_ = Pass::kInference;  // kind of the open training pass
  bool sends_ = false;            // true if gradients of this backward pass are sent
  // Declared last because its hooks use the other members.
  std::optional<GradientArrivals> arrivals_;
};

}  // namespace dslaunch
