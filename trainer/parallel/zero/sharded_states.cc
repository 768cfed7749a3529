#include "trainer/parallel/zero/sharded_states.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/desync_detector.h"
#include "trainer/device/streams.h"
#include "trainer/parallel/master_weights.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"
#include "trainer/parallel/sync_options.h"

namespace dslaunch {
namespace {

GradSyncOptions OptionsFor(const EngineConfig& config, const torch::nn::Module& module,
                           const ProcessGroup& group, bool accumulates_whole) {
  GradSyncOptions options = SyncOptions(config, module);
  // A message contains the gradients of only one micro-batch, so the precision of the model's dtype
  // suffices.
  if (!accumulates_whole && !config.communication.dtype) {
    options.communication_dtype = WidenedFor(module, config, config.precision.model);
  }
  // A group of one rank sends nothing, so its gradients need not be rounded to the communication
  // dtype.
  if (group.world_size() == 1) options.communication_dtype = options.accumulation_dtype;
  return options;
}

// Returns the tensor options of offloaded states. On CPUs these are `options` unchanged.
at::TensorOptions Offloaded(const ZeroConfig::Offload& offload, const at::TensorOptions& options) {
  if (offload.device == OffloadDevice::kNone || options.device().is_cpu()) return options;
  return options.device(at::kCPU).pinned_memory(offload.pin_memory);
}

std::optional<FileTensors> FilesOf(const ZeroConfig::Offload& offload) {
  if (offload.device != OffloadDevice::kNvme) return std::nullopt;
  return FileTensors(offload.nvme_path);
}

// Returns the descriptions of `parameters`. `dtypes` are the dtypes to which they will be cast.
std::vector<ShardedParameter> Described(const std::vector<NamedTensor>& parameters,
                                        const TensorDtypes& dtypes,
                                        const std::vector<TiedGroup>& tied) {
  std::vector<ShardedParameter> described;
  for (const auto& [name, tensor] : parameters) {
    const auto cast = dtypes.find(tensor.unsafeGetTensorImpl());
    const at::ScalarType dtype = cast == dtypes.end() ? tensor.scalar_type() : cast->second;
    described.push_back({.name = name,
                         .elements = tensor.numel(),
                         .dtype = static_cast<int>(dtype),
                         .trained = tensor.requires_grad(),
                         .alone = std::ranges::find(tied, name, &TiedGroup::name) != tied.end()});
  }
  return described;
}

// Returns the tensor that the optimizer updates: `shard` itself if it has the right device and
// dtype, otherwise a copy. The tensor is on `ranks_device` even if parameters are offloaded, unless
// the optimizer is offloaded too.
at::Tensor WeightsOf(const at::Tensor& shard, at::ScalarType dtype, c10::Device ranks_device,
                     const ZeroConfig::Offload& offload, const std::optional<FileTensors>& files) {
  const bool is_host_copy = shard.device().is_cpu() && dtype == shard.scalar_type();
  if (files && !is_host_copy) return files->Zeros(shard.sizes(), dtype).copy_(shard);
  const bool stays = offload.device == OffloadDevice::kNone;
  const at::TensorOptions options =
      Offloaded(offload, shard.options().device(stays ? ranks_device : shard.device()))
          .dtype(dtype);
  if (!options.pinned_memory() || shard.device().is_cpu()) return shard.to(options);
  // to() would not pin the memory, so copy_() is used.
  return at::empty(shard.sizes(), options).copy_(shard);
}

}  // namespace

ShardedStates::ShardedStates(const EngineConfig& config, torch::nn::Module& module,
                             const MeshGroups& ranks, Passes passes, InitRecording* deferred)
    : group_(ranks.data()),
      buffers_(Unique(module.named_buffers())),
      zero_(config.zero),
      parameter_files_(FilesOf(zero_.offload_param)),
      optimizer_files_(FilesOf(zero_.offload_optimizer)),
      accumulates_whole_(zero_.stage == 1 || passes == Passes::kBatches),
      options_(OptionsFor(config, module, group_, accumulates_whole_)),
      exchange_(group_),
      gradients_(
          group_, exchange_,
          {.sync = options_,
           .sum_dtype = group_.world_size() == 1 ? options_.accumulation_dtype
                                                 : SyncOptions(config, module).communication_dtype,
           .zero = zero_,
           .accumulates_whole = accumulates_whole_}),
      refreshes_late_(options_.overlap && group_.world_size() > 1 && !group_.device().is_cpu() &&
                      !config.cuda_graph),
      parameters_(Unique(module.named_parameters())),
      places_(parameters_.size()),
      has_gradient_(parameters_.size()) {
  const at::NoGradGuard no_grad;
  CheckSameModel(group_, TrainableParameters(module), TensorsOf(buffers_),
                 /*may_be_empty=*/passes == Passes::kBatches);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    elements_.push_back(parameters_[i].tensor.numel());
    if (parameters_[i].tensor.requires_grad()) trained_.push_back(i);
  }
  const TensorDtypes dtypes =
      ModuleDtypes(module, config.precision.model, config.precision.batch_norm_float32);
  MakeUnits(dtypes, ranks.tied());
  if (deferred != nullptr) {
    TakeFrom(*deferred, dtypes);
  } else {
    TakeFromModel();
  }
  MakeWeights(config.precision.master_weights);
  MakeGatherer();
  std::vector<NamedTensor> expected;  // parameters whose gradients are expected
  for (const size_t i : trained_) expected.push_back(parameters_[i]);
  arrivals_.emplace(std::move(expected), [this](size_t index) { Accumulate(trained_[index]); });
}

// Creates the units without values. `dtypes` are the dtypes to which parameters will be cast.
void ShardedStates::MakeUnits(const TensorDtypes& dtypes, const std::vector<TiedGroup>& tied) {
  const std::vector<ShardedParameter> described = Described(parameters_, dtypes, tied);
  const auto message_bytes = static_cast<int64_t>(c10::elementSize(options_.communication_dtype));
  for (FlatParameter& layout :
       CutIntoUnits(described, zero_, BucketElements(zero_, message_bytes), group_.world_size())) {
    const auto dtype = static_cast<at::ScalarType>(described[layout.parameters[0]].dtype);
    const at::TensorOptions options = at::TensorOptions(group_.device()).dtype(dtype);
    const int64_t n = layout.shard_elements;
    const int64_t all = n * group_.world_size();
    Unit unit;
    if (layout.persistent) {
      unit.flat = at::zeros({all}, options);
      unit.shard = unit.flat.narrow(0, n * group_.rank(), n);
    } else {
      unit.flat = ParameterGatherer::MakeFlat(all, options);
      unit.shard = parameter_files_ ? parameter_files_->Zeros({n}, dtype)
                                    : at::zeros({n}, Offloaded(zero_.offload_param, options));
    }
    for (size_t i = 0; i < layout.parameters.size(); ++i) {
      places_[layout.parameters[i]] = {units_.size(), layout.offsets[i]};
    }
    unit.layout = std::move(layout);
    units_.push_back(std::move(unit));
  }
}

// Creates the tensors that the optimizer updates, and the tensors in which their gradients
// accumulate.
void ShardedStates::MakeWeights(bool master_weights) {
  struct Piece {
    ShardPiece place;
    size_t unit;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = units_[i];
    if (!unit.layout.trained) continue;
    unit.weights = WeightsOf(unit.shard, master_weights ? at::kFloat : unit.shard.scalar_type(),
                             group_.device(), zero_.offload_optimizer, optimizer_files_);
    unit.gradients = gradients_.Add(unit.layout, static_cast<int>(i), unit.flat.options());
    for (const ShardPiece& piece : PiecesOf(unit.layout, elements_, group_.rank())) {
      pieces.push_back({piece, i});
      ++unit.parts;
    }
  }
  std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.place.tensor; });
  size_t index = 0;  // index of the parameter in trained_
  for (const auto& [place, unit] : pieces) {
    while (trained_[index] != place.tensor) ++index;
    parts_.push_back(
        {index, units_[unit].weights.narrow(0, place.at, place.shard.elements()), place.shard});
    gradient_places_.push_back({unit, place.at});
  }
}

ZerosBeside ShardedStates::StateZeros() const {
  if (!optimizer_files_) return nullptr;
  return [files = *optimizer_files_](const at::Tensor& weight) {
    return files.Zeros(weight.sizes(), weight.scalar_type());
  };
}

void ShardedStates::MakeGatherer() {
  if (zero_.stage == 3) {
    group_.desync_detector().Watch(DesyncDetector::PatienceFor(group_.timeout()));
  }
  std::vector<ParameterGatherer::Unit> gathered;
  for (Unit& unit : units_) {
    const bool stays = unit.layout.persistent;
    if (stays && !(refreshes_late_ && unit.layout.trained)) continue;
    unit.gathered_index = gathered.size();
    gathered.push_back({unit.layout.name, unit.flat, unit.shard, stays});
  }
  if (gathered.empty()) return;
  gatherer_.emplace(exchange_, static_cast<int>(units_.size()), std::move(gathered),
                    GatherLimits{.prefetch_bucket_size = zero_.prefetch_bucket_size,
                                 .max_live_parameters = zero_.max_live_parameters,
                                 .max_reuse_distance = zero_.max_reuse_distance,
                                 .overlap = options_.overlap});
}

void ShardedStates::TakeFromModel() {
  if (options_.broadcast_buffers) BroadcastFromRank0(group_, TensorsOf(buffers_));
  BroadcastFromRank0(group_, TensorsOf(parameters_));
  for (const NamedTensor& buffer : buffers_) {
    buffer.tensor.set_data(buffer.tensor.detach().to(group_.device()));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) Take(i, parameters_[i].tensor);
}

void ShardedStates::TakeFrom(InitRecording& deferred, const TensorDtypes& dtypes) {
  std::vector<at::Tensor> tensors = TensorsOf(parameters_);
  for (const NamedTensor& item : buffers_) tensors.push_back(item.tensor);
  deferred.Replay(tensors, [&](size_t index, const at::Tensor& values) {
    const bool has_unit = index < parameters_.size() && places_[index].unit != kNoUnit;
    if (has_unit) return Take(index, values.detach());
    const auto cast = dtypes.find(tensors[index].unsafeGetTensorImpl());
    tensors[index].set_data(values.detach().to(
        group_.device(), cast == dtypes.end() ? values.scalar_type() : cast->second));
  });
}

// Copies a parameter's values into its unit, and makes the parameter a view of the unit.
void ShardedStates::Take(size_t index, const at::Tensor& values) {
  at::Tensor parameter = parameters_[index].tensor;
  const Place& place = places_[index];
  if (place.unit == kNoUnit) {
    if (!parameter.is_same(values) || parameter.device() != group_.device())
      parameter.set_data(values.detach().to(group_.device()));
    return;
  }
  const Unit& unit = units_[place.unit];
  const int64_t elements = parameter.numel();
  const at::Tensor view = unit.flat.narrow(0, place.offset, elements).view(parameter.sizes());
  if (unit.layout.persistent) {
    view.copy_(values);
  } else {
    const int64_t begin = unit.layout.shard_elements * group_.rank();
    const int64_t first = std::max(begin, place.offset);
    const int64_t last = std::min(begin + unit.layout.shard_elements, place.offset + elements);
    if (first < last) {
      unit.shard.narrow(0, first - begin, last - first)
          .copy_(values.reshape({-1}).narrow(0, first - place.offset, last - first));
    }
  }
  parameter.set_data(view);
}

void ShardedStates::Begin(Pass pass) {
  infers_ = pass == Pass::kInference;
  if (!infers_) {
    pass_ = pass;
    sends_ = false;
    gradients_.MakeWhole();
  }
  if (gatherer_) gatherer_->Begin(!infers_);
}

void ShardedStates::BeforeBackward(bool last) {
  if (gatherer_) gatherer_->CheckThread();
  if (gatherer_) gatherer_->Settle();
  sends_ = last || !accumulates_whole_;
  if (!sends_) return;
  gradients_.AwaitSent();  // an earlier backward pass since Begin may have sent gradients
  arrivals_->ExpectOnce();
  gradients_.ExpectAll();
}

void ShardedStates::Accumulate(size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const at::Tensor place = GradientPlace(parameter);
  if (has_gradient_[parameter]) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
  }
  has_gradient_[parameter] = accumulates_whole_;
  gradient.reset();
  if (!sends_) return;
  gradients_.Count(units_[places_[parameter].unit].gradients);
  gradients_.SendComplete();
}

// Returns the tensor into which the parameter's gradient is copied on arrival.
at::Tensor ShardedStates::GradientPlace(size_t parameter) {
  const at::Tensor& tensor = parameters_[parameter].tensor;
  return gradients_.Arriving(units_[places_[parameter].unit].gradients)
      .narrow(0, places_[parameter].offset, tensor.numel())
      .view(tensor.sizes());
}

void ShardedStates::AfterBackward() {
  if (!sends_) return;
  FillUnused();
  gradients_.SendComplete();
}

void ShardedStates::End() {
  if (infers_) {
    infers_ = false;
    if (gatherer_) {
      gatherer_->Settle();
      gatherer_->End();
    }
    return;
  }
  if (pass_ == Pass::kSync && !sends_) {  // if no backward pass was the last one
    gradients_.ExpectAll();
    FillUnused();
    gradients_.SendComplete();
  }
  gradients_.AwaitSent();
  sends_ = false;
  pass_ = Pass::kInference;
  if (gatherer_) gatherer_->End();
}

// Completes the units of parameters without a gradient. Called when no more gradients can arrive.
void ShardedStates::FillUnused() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < trained_.size(); ++i) {
    const size_t parameter = trained_[i];
    if (sends_ && arrivals_->arrived(i)) continue;
    gradients_.Count(units_[places_[parameter].unit].gradients);
    if (!sends_ && has_gradient_[parameter]) continue;
    if (!zero_.ignore_unused_parameters) RefuseWithoutGradient(parameters_[parameter]);
    if (!has_gradient_[parameter]) GradientPlace(parameter).zero_();
  }
}

std::vector<at::Tensor> ShardedStates::Gradients() {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Place& place = gradient_places_[i];
    const at::Tensor& part = gradients_.Part(units_[place.unit].gradients);
    gradients.push_back(part.narrow(0, place.offset, parts_[i].weight.numel()));
  }
  return gradients;
}

void ShardedStates::CopyMasterToModel() {
  const at::NoGradGuard no_grad;
  if (gatherer_) gatherer_->Settle();
  std::vector<ShardExchange::Gathered> gathered;
  int64_t elements = 0;
  const auto gather = [&] {
    for (PendingExchange& exchange : exchange_.AllGather(std::exchange(gathered, {}))) {
      exchange.Wait();
    }
    elements = 0;
  };
  const bool is_returned = std::exchange(is_returned_, false);
  if (!is_returned) AwaitShardReads();
  if (return_stream_) OrderAfter(CurrentStream(group_.device()), *return_stream_);
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (!unit.layout.trained) continue;
    const bool follows = unit.weights.is_same(unit.shard) || (is_returned && unit.returns());
    if (!follows) unit.shard.copy_(unit.weights);
    if (!unit.layout.persistent || refreshes_late_) continue;
    if (elements + unit.flat.numel() > zero_.allgather_bucket_size) gather();
    elements += unit.flat.numel();
    gathered.push_back({unit.flat, static_cast<int>(i), "the parameters of " + unit.layout.name});
  }
  gather();
  if (!gatherer_ || !refreshes_late_) return;
  std::vector<size_t> refreshed;  // units in forward order, which is the reverse of units_
  for (size_t i = units_.size(); i-- > 0;) {
    const FlatParameter& layout = units_[i].layout;
    if (layout.persistent && layout.trained) refreshed.push_back(units_[i].gathered_index);
  }
  gatherer_->Refresh(refreshed);
}

void ShardedStates::Updated(size_t begin, size_t end) {
  const at::NoGradGuard no_grad;
  if (std::ranges::none_of(units_, &Unit::returns)) return;
  if (begin == 0) {
    const c10::Device device = group_.device();
    AwaitShardReads();
    for (Unit& unit : units_) unit.updated = 0;
    if (!return_stream_) return_stream_ = OtherStream(device);
    OrderAfter(*return_stream_, CurrentStream(device));
  }
  const c10::StreamGuard beside(*return_stream_);
  for (size_t i = begin; i < end; ++i) {
    Unit& unit = units_[gradient_places_[i].unit];
    if (++unit.updated == unit.parts && unit.returns()) CopyLater(unit.shard, unit.weights);
  }
  is_returned_ = end == parts_.size();
}

// Waits until no copy reads the shards in the host's memory. Called before they change, because
// copies of earlier gathers may still be running.
void ShardedStates::AwaitShardReads() const {
  const bool any = std::ranges::any_of(
      units_, [](const Unit& unit) { return unit.shard.device() != unit.flat.device(); });
  if (any) AwaitStream(group_.device());
}

void ShardedStates::Clear() {
  DropGradients();
  if (options_.broadcast_buffers) BroadcastFromRank0(group_, TensorsOf(buffers_));
}

void ShardedStates::DropGradients() {
  gradients_.Drop();
  // If a hook threw, the gradient is still in .grad(), so the gradients are freed here.
  for (const size_t i : trained_) parameters_[i].tensor.mutable_grad().reset();
  has_gradient_.assign(has_gradient_.size(), false);
  arrivals_->AllowAny();
}

void ShardedStates::GiveUp() {
  const at::NoGradGuard no_grad;
  if (sends_) gradients_.GiveUp();
  gradients_.FreeBuckets();
  infers_ = sends_ = false;
  pass_ = Pass::kInference;
  if (gatherer_) {
    gatherer_->Settle();
    gatherer_->End();
  }
  DropGradients();
}

// Returns the indices in `gatherer_` of the units of `parameters` that are released between uses,
// each index once.
std::vector<size_t> ShardedStates::ReleasedUnits(const std::vector<at::Tensor>& parameters) const {
  std::set<size_t> units;
  for (const at::Tensor& parameter : parameters) {
    const Unit* const unit = UnitOf(parameter);
    if (unit != nullptr && !unit->layout.persistent) units.insert(unit->gathered_index);
  }
  return {units.begin(), units.end()};
}

const ShardedStates::Unit* ShardedStates::UnitOf(const at::Tensor& parameter) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.is_same(parameter)) continue;
    return places_[i].unit == kNoUnit ? nullptr : &units_[places_[i].unit];
  }
  throw TrainError(ExitCode::kUsage,
                   "GatheredParameters: the tensor is not a parameter of this engine's model");
}

void ShardedStates::Unshard(const std::vector<at::Tensor>& parameters) {
  const std::vector<size_t> units = ReleasedUnits(parameters);
  if (!units.empty()) gatherer_->Unshard(units);
}

void ShardedStates::Reshard(const std::vector<at::Tensor>& parameters,
                            std::optional<int> modifier_rank) {
  const at::NoGradGuard no_grad;
  if (modifier_rank) {
    for (at::Tensor parameter : parameters) group_.Broadcast(parameter, *modifier_rank);
  }
  const std::vector<size_t> units = ReleasedUnits(parameters);
  if (!units.empty()) gatherer_->Reshard(units, modifier_rank.has_value());
  if (!modifier_rank) return;
  for (const Unit& unit : units_) {
    if (unit.layout.trained && !unit.weights.is_same(unit.shard)) {
      CopyChanges(unit.shard, unit.weights);
    }
  }
}

MemoryUse ShardedStates::memory() const {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  };
  const int64_t parts = (accumulates_whole_ ? group_.world_size() : 0) + (zero_.stage > 1 ? 1 : 0);
  MemoryUse use;
  for (const Unit& unit : units_) {
    const bool has_memory = unit.layout.persistent || gatherer_->live(unit.gathered_index);
    if (has_memory) use.parameters += bytes(unit.flat);
    if (!unit.layout.persistent) use.parameters += bytes(unit.shard);
    if (unit.layout.trained) use.gradients += parts * bytes(gradients_.Part(unit.gradients));
    if (!unit.weights.is_same(unit.shard)) use.optimizer += bytes(unit.weights);
  }
  for (const TensorPart& frozen : Frozen()) {
    if (frozen.replicated) use.parameters += bytes(frozen.tensor);
  }
  use.buckets = gradients_.peak_bytes();
  return use;
}

std::vector<TensorPart> ShardedStates::Frozen() const {
  std::vector<TensorPart> frozen;
  for (const Unit& unit : units_) {
    if (unit.layout.trained) continue;
    for (const ShardPiece& piece : PiecesOf(unit.layout, elements_, group_.rank())) {
      const NamedTensor& parameter = parameters_[piece.tensor];
      frozen.push_back({.name = parameter.name,
                        .tensor = unit.shard.narrow(0, piece.at, piece.shard.elements()),
                        .shape = parameter.tensor.sizes().vec(),
                        .shard = piece.shard,
                        .replicated = false});
    }
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    if (places_[i].unit != kNoUnit) continue;
    frozen.push_back(TensorPart::Whole(name, tensor));
  }
  return frozen;
}

}  // namespace dslaunch
