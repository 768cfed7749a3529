// ZeRO stages 1 to 3: each rank holds a part of the model's states.
#pragma once

#include <c10/core/Stream.h>

#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/gradient_scale.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/shard_exchange.h"
#include "trainer/parallel/zero/file_tensors.h"
#include "trainer/parallel/zero/flat_parameter.h"
#include "trainer/parallel/zero/parameter_gatherer.h"

namespace dslaunch {

// The parameters of a unit (flat_parameter.h) lie one after the other in one flat tensor, of which
// each rank's optimizer updates a part.
//
// Gradients: as soon as a backward pass has one, it is moved into its unit's flat gradient and
// freed. At stage 1 that accumulates over the micro-batches of a step, and is reduced on the last
// one. At stages 2 and 3 it is reduced in every micro-batch, and only this rank's part of the sum
// accumulates. A unit is sent when it is complete, while the backward pass goes on; without
// overlap_comm its sum is awaited at once. Units are sent in one order on all ranks. At most
// kMostUnderWay are on their way, so that buckets take little memory.
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
  int64_t live_bucket_bytes() const override { return live_bucket_bytes_; }
  std::vector<TensorPart> Frozen() const override;

 private:
  struct Unit {
    FlatParameter layout;
    size_t gathered_index = 0;  // the unit's index in ParameterGatherer, if it is there
    at::Tensor flat;     // [ranks * n], model dtype: the parameters; at stage 3 ParameterGatherer's
    at::Tensor shard;    // [n]: this rank's part of it; has its own memory if flat's is released
    at::Tensor weights;  // [n]: updated by the optimizer: fp32 masters, or `shard`
    at::Tensor whole;    // [ranks * n], accumulation dtype: gradients that accumulate whole
    at::Tensor gradient;  // [n]: this rank's part, reduced; at stage 1 a part of `whole`
    bool filled = false;  // whether `gradient` holds anything of this step
    size_t parts = 0;     // parts() in `weights`
    size_t updated = 0;   // those that are updated in this step
    // This reduction:
    size_t awaited = 0;  // gradients that have not arrived yet
    at::Tensor message;  // [ranks * n], MessageDtypeOf
    at::Tensor sum;      // [n], accumulation dtype
    c10::intrusive_ptr<c10d::Work> all_reduce;
    Exchange all_reduce_exchange;
    PendingExchange exchange;
    int64_t bucket_bytes = 0;  // bytes of `message`, `sum` and the exchange's received parts
  };
  static constexpr size_t kNoUnit = std::numeric_limits<size_t>::max();
  using Dtypes = std::unordered_map<const at::TensorImpl*, at::ScalarType>;
  struct Place {
    size_t unit = kNoUnit;
    int64_t offset = 0;  // in the flat tensor
  };

  void MakeUnits(const Dtypes& dtypes, const std::vector<TiedGroup>& tied);
  void MakeUnit(FlatParameter layout, at::ScalarType dtype);
  void MakeWeights(bool master_weights);
  at::Tensor WeightsOf(const at::Tensor& shard, bool master_weights) const;
  void MakeGatherer();
  void TakeFromModel();
  void TakeFrom(InitRecording& deferred, const Dtypes& dtypes);
  void Take(size_t parameter, const at::Tensor& values);
  const Unit* UnitOf(const at::Tensor& parameter) const;
  std::vector<size_t> ReleasedUnits(const std::vector<at::Tensor>& parameters) const;
  void Accumulate(size_t parameter);  // the hook
  at::Tensor GradientPlace(size_t parameter);
  const at::Tensor& WholeGradient(Unit& unit);
  void MakeWhole();
  void AwaitShardReads() const;
  bool Returns(const Unit& unit) const;  // whether its weights are offloaded from a device
  void ExpectAll();
  void FillUnused();
  void SendComplete();
  void Send(size_t unit);
  void Await(Unit& unit);
  void AwaitSent();
  void CountBucket(Unit& unit, int64_t bytes);
  at::ScalarType MessageDtypeOf(const Unit& unit) const;
  at::ScalarType SumDtypeOf(const Unit& unit) const;
  void FreeBucket(Unit& unit);

  const ProcessGroup& group_;
  const std::vector<NamedTensor> buffers_;
  const ZeroConfig zero_;
  const std::optional<FileTensors> parameter_files_, optimizer_files_;  // offloaded to NVMe
  const bool accumulates_whole_;
  const GradSyncOptions options_;
  const at::ScalarType sum_dtype_;  // sums over the ranks are rounded to it, or a wider one
  const GradientScale scale_;
  const ShardExchange exchange_;
  const bool refreshes_late_;            // persistent units are awaited when they are read
  std::vector<NamedTensor> parameters_;  // all parameters of the module
  std::vector<int64_t> elements_;        // number of elements of each parameter
  std::vector<Place> places_;            // place of each parameter in a unit's flat tensor
  std::vector<bool> has_gradient_;  // parameters with a gradient in this step, if accumulated whole
  std::vector<Unit> units_;
  std::vector<size_t> trained_;         // indices of trained parameters
  std::vector<size_t> trained_units_;   // in the order in which they are sent
  std::vector<Place> gradient_places_;  // place of each part in this rank's part of the unit
  std::optional<ParameterGatherer> gatherer_;

  std::optional<c10::Stream> return_stream_;  // copies offloaded weights beside arriving gradients
  bool is_returned_ = false;                  // Updated has begun the copies of all weights
  bool infers_ = false;                       // an inference pass is open
  Pass pass_ = Pass::kInference;              // the training pass that is open
  bool sends_ = false;                        // gradients of this backward pass are sent
  size_t sent_ = 0, awaited_ = 0;             // numbers of trained_units_, in this reduction
  int64_t live_bucket_bytes_ = 0, peak_bucket_bytes_ = 0;
  std::optional<GradientArrivals> arrivals_;  // last: its hooks use the rest
};

}  // namespace dslaunch
