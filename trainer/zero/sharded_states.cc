#include "trainer/zero/sharded_states.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/engine/module_tensors.h"
#include "trainer/engine/sync_options.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

GradSyncOptions OptionsFor(const EngineConfig& config, const ProcessGroup& group) {
  GradSyncOptions options = SyncOptions(config);
  if (config.zero.stage > 1) {  // a message holds the gradients of one micro-batch
    options.communication_dtype =
        ToScalarType(config.communication.dtype.value_or(config.precision.model));
  }
  // Nothing travels in a world of one, so nothing is to be rounded for it.
  if (group.world_size() == 1) options.communication_dtype = options.accumulation_dtype;
  return options;
}

int64_t BucketElements(const ZeroConfig& zero, const GradSyncOptions& options) {
  const auto size = static_cast<int64_t>(c10::elementSize(options.communication_dtype));
  return std::max<int64_t>(1, std::min({zero.reduce_bucket_size, zero.allgather_bucket_size,
                                        options.bucket_bytes / size}));
}

std::vector<ShardedParameter> Describe(const std::vector<NamedTensor>& parameters) {
  std::vector<ShardedParameter> described;
  for (const auto& [name, tensor] : parameters) {
    described.push_back({.name = name,
                         .elements = tensor.numel(),
                         .dtype = static_cast<int>(tensor.scalar_type()),
                         .trained = tensor.requires_grad()});
  }
  return described;
}

}  // namespace

ShardedStates::ShardedStates(const EngineConfig& config, torch::nn::Module& module,
                             const std::vector<NamedTensor>& trained, const ProcessGroup& group)
    : group_(group),
      module_(module),
      zero_(config.zero),
      options_(OptionsFor(config, group)),
      sum_dtype_(group.world_size() == 1 ? options_.accumulation_dtype
                                         : ToScalarType(TravelDtype(config))),
      scale_(ScaleOf(options_, group.world_size())),
      exchange_(group),
      parameters_(Unique(module.named_parameters())),
      places_(parameters_.size()),
      has_gradient_(parameters_.size()) {
  const at::NoGradGuard no_grad;
  CheckSameModel(group_, trained, module_.buffers());
  std::vector<at::Tensor> tensors = module_.buffers();
  for (const NamedTensor& parameter : parameters_) tensors.push_back(parameter.tensor);
  BroadcastFromRank0(group_, tensors);

  for (FlatUnit& layout : CutIntoUnits(Describe(parameters_), zero_,
                                       BucketElements(zero_, options_), group_.world_size())) {
    MakeUnit(std::move(layout), config.precision.master_weights);
  }
  std::vector<int64_t> elements;
  for (const NamedTensor& parameter : parameters_) elements.push_back(parameter.tensor.numel());
  std::vector<NamedTensor> expected;  // gradients
  std::vector<size_t> index_of(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.requires_grad()) continue;
    index_of[i] = expected.size();
    expected.push_back(parameters_[i]);
    trained_.push_back(i);
  }
  std::vector<ParameterGatherer::Unit> gathered;
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (!unit.layout.persistent) gathered.push_back({unit.layout.name, unit.flat, unit.shard});
    if (!unit.layout.trained) continue;
    trained_units_.push_back(i);
    for (const ShardPiece& piece : PiecesOf(unit.layout, elements, group_.rank())) {
      parts_.push_back({index_of[piece.parameter],
                        unit.weights.narrow(0, piece.at, piece.end - piece.start), piece.start});
      gradient_places_.push_back({i, piece.at});
    }
  }
  if (!gathered.empty()) {
    gatherer_.emplace(exchange_, static_cast<int>(units_.size()), std::move(gathered),
                      GatherLimits{.prefetch_bucket_size = zero_.prefetch_bucket_size,
                                   .max_live_parameters = zero_.max_live_parameters,
                                   .max_reuse_distance = zero_.max_reuse_distance,
                                   .overlap = options_.overlap});
  }
  arrivals_.emplace(std::move(expected), [this](size_t index) { Accumulate(trained_[index]); });
}

void ShardedStates::MakeUnit(FlatUnit layout, bool master_weights) {
  Unit unit;
  const int64_t n = layout.shard_elements;
  const int64_t all = n * group_.world_size();
  const at::TensorOptions options = parameters_[layout.parameters[0]].tensor.options();
  unit.flat = at::zeros({all}, options.requires_grad(false));
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    at::Tensor parameter = parameters_[layout.parameters[i]].tensor;
    const at::Tensor place =
        unit.flat.narrow(0, layout.offsets[i], parameter.numel()).view(parameter.sizes());
    place.copy_(parameter);
    parameter.set_data(place);
    places_[layout.parameters[i]] = {units_.size(), layout.offsets[i]};
  }
  unit.shard = unit.flat.narrow(0, n * group_.rank(), n);
  if (!layout.persistent) unit.shard = unit.shard.clone();
  if (layout.trained) {
    unit.weights = unit.shard;
    if (master_weights) unit.weights = unit.shard.to(at::kFloat);
    unit.gradient = at::zeros({zero_.stage == 1 ? all : n},
                              unit.flat.options().dtype(options_.accumulation_dtype));
  }
  unit.layout = std::move(layout);
  units_.push_back(std::move(unit));
}

void ShardedStates::BeforeForward(Pass pass) {
  if (gatherer_) gatherer_->Begin(pass != Pass::kInference);
}

void ShardedStates::AfterForward(Pass pass) {
  if (pass == Pass::kInference) {
    if (gatherer_) gatherer_->End();
    return;
  }
  sends_ = pass == Pass::kSync || zero_.stage > 1;
  if (!sends_) return;
  arrivals_->ExpectOnce();
  sent_ = awaited_ = 0;
  for (const size_t i : trained_units_) units_[i].awaited = units_[i].layout.parameters.size();
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
  has_gradient_[parameter] = zero_.stage == 1;
  gradient.reset();
  if (!sends_) return;
  --units_[places_[parameter].unit].awaited;
  SendComplete();
}

// Where a gradient is put when it comes.
at::Tensor ShardedStates::GradientPlace(size_t parameter) {
  Unit& unit = units_[places_[parameter].unit];
  if (zero_.stage > 1 && !unit.message.defined()) {
    unit.message = at::empty({unit.layout.shard_elements * group_.world_size()},
                             unit.gradient.options().dtype(options_.communication_dtype));
    CountBucket(unit.message);
  }
  const at::Tensor& flat = zero_.stage > 1 ? unit.message : unit.gradient;
  const at::Tensor& tensor = parameters_[parameter].tensor;
  return flat.narrow(0, places_[parameter].offset, tensor.numel()).view(tensor.sizes());
}

void ShardedStates::SendComplete() {
  for (; sent_ < trained_units_.size() && units_[trained_units_[sent_]].awaited == 0; ++sent_) {
    if (sent_ - awaited_ == kMostUnderWay) Await(units_[trained_units_[awaited_++]]);
    Send(trained_units_[sent_]);
    if (!options_.overlap) Await(units_[trained_units_[awaited_++]]);
  }
}

void ShardedStates::Send(size_t index) {
  Unit& unit = units_[index];
  if (zero_.stage == 1) {
    unit.message = unit.gradient.to(options_.communication_dtype);
    if (!unit.message.is_same(unit.gradient)) CountBucket(unit.message);
  }
  if (scale_.before != 1) unit.message.mul_(scale_.before);
  if (!zero_.reduce_scatter) {
    std::vector<at::Tensor> messages = {unit.message};
    unit.all_reduce = group_.c10d_group()->allreduce(messages);
    return;
  }
  unit.sum = at::empty({unit.layout.shard_elements}, unit.gradient.options());
  CountBucket(unit.sum);
  unit.exchange = exchange_.ReduceScatter(unit.message, unit.sum, static_cast<int>(index));
}

void ShardedStates::Await(Unit& unit) {
  const at::NoGradGuard no_grad;
  if (unit.all_reduce) {
    unit.all_reduce->wait();
    unit.all_reduce.reset();
    const int64_t n = unit.layout.shard_elements;
    unit.sum = unit.message.narrow(0, n * group_.rank(), n).to(options_.accumulation_dtype);
  } else {
    unit.exchange.Wait();
  }
  // As at stage 0, where the sum travels back.
  if (sum_dtype_ != options_.accumulation_dtype) unit.sum.copy_(unit.sum.to(sum_dtype_));
  if (scale_.after != 1) unit.sum.mul_(scale_.after);
  const at::Tensor own = OwnGradient(unit);
  if (zero_.stage > 1 && unit.filled) {
    own.add_(unit.sum);
  } else {
    own.copy_(unit.sum);
  }
  unit.filled = true;
  unit.message.reset();
  unit.sum.reset();
  live_bucket_bytes_ = 0;
  for (const Unit& other : units_) {
    if (other.message.defined() && !other.message.is_same(other.gradient)) {
      live_bucket_bytes_ += static_cast<int64_t>(other.message.nbytes());
    }
    if (other.sum.defined()) live_bucket_bytes_ += static_cast<int64_t>(other.sum.nbytes());
  }
}

void ShardedStates::CountBucket(const at::Tensor& tensor) {
  live_bucket_bytes_ += static_cast<int64_t>(tensor.nbytes());
  peak_bucket_bytes_ = std::max(peak_bucket_bytes_, live_bucket_bytes_);
}

void ShardedStates::AfterBackward(Pass) {
  if (sends_) {
    FillUnused();
    SendComplete();
    while (awaited_ < sent_) Await(units_[trained_units_[awaited_++]]);
  }
  sends_ = false;
  if (gatherer_) gatherer_->End();
}

void ShardedStates::FillUnused() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < trained_.size(); ++i) {
    if (arrivals_->arrived(i)) continue;
    const size_t parameter = trained_[i];
    if (!zero_.ignore_unused_parameters) {
      throw TrainError(ExitCode::kBadInput,
                       "the parameter " + parameters_[parameter].name +
                           " got no gradient: the model's output does not depend on it; leave it "
                           "out of the model, or set zero_optimization.ignore_unused_parameters");
    }
    if (!has_gradient_[parameter]) GradientPlace(parameter).zero_();
    --units_[places_[parameter].unit].awaited;
  }
}

at::Tensor ShardedStates::OwnGradient(const Unit& unit) const {
  if (zero_.stage > 1) return unit.gradient;
  const int64_t n = unit.layout.shard_elements;
  return unit.gradient.narrow(0, n * group_.rank(), n);
}

std::vector<at::Tensor> ShardedStates::Gradients() {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Place& place = gradient_places_[i];
    gradients.push_back(
        OwnGradient(units_[place.unit]).narrow(0, place.offset, parts_[i].weight.numel()));
  }
  return gradients;
}

void ShardedStates::Publish() {
  const at::NoGradGuard no_grad;
  std::vector<PendingExchange> under_way;
  int64_t elements = 0;
  const auto await = [&] {
    for (PendingExchange& exchange : under_way) exchange.Wait();
    under_way.clear();
    elements = 0;
  };
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (!unit.layout.trained) continue;
    if (!unit.weights.is_same(unit.shard)) unit.shard.copy_(unit.weights);
    if (!unit.layout.persistent) continue;
    if (elements + unit.flat.numel() > zero_.allgather_bucket_size) await();
    elements += unit.flat.numel();
    under_way.push_back(exchange_.AllGather(unit.flat, static_cast<int>(i)));
  }
  await();
}

void ShardedStates::Clear() {
  for (Unit& unit : units_) unit.filled = false;
  has_gradient_.assign(has_gradient_.size(), false);
  arrivals_->AllowAny();
  BroadcastFromRank0(group_, module_.buffers());
}

MemoryUse ShardedStates::memory() const {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  };
  MemoryUse use;
  for (const Unit& unit : units_) {
    use.parameters += static_cast<int64_t>(unit.flat.storage().nbytes());
    if (!unit.layout.persistent) use.parameters += bytes(unit.shard);
    use.gradients += bytes(unit.gradient);
    if (!unit.weights.is_same(unit.shard)) use.optimizer += bytes(unit.weights);
  }
  for (const TensorPart& frozen : Frozen()) {
    if (frozen.replicated) use.parameters += bytes(frozen.tensor);
  }
  use.buckets = peak_bucket_bytes_;
  return use;
}

std::vector<TensorPart> ShardedStates::Frozen() const {
  std::vector<TensorPart> frozen;
  std::vector<int64_t> elements;
  for (const NamedTensor& parameter : parameters_) elements.push_back(parameter.tensor.numel());
  std::vector<bool> cut(parameters_.size());
  for (const Unit& unit : units_) {
    for (const size_t parameter : unit.layout.parameters) cut[parameter] = true;
    if (unit.layout.trained) continue;
    for (const ShardPiece& piece : PiecesOf(unit.layout, elements, group_.rank())) {
      const NamedTensor& parameter = parameters_[piece.parameter];
      frozen.push_back({.name = parameter.name,
                        .tensor = unit.shard.narrow(0, piece.at, piece.end - piece.start),
                        .shape = parameter.tensor.sizes().vec(),
                        .start = piece.start,
                        .replicated = false});
    }
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    if (!cut[i]) frozen.push_back({.name = name, .tensor = tensor, .shape = tensor.sizes().vec()});
  }
  return frozen;
}

}  // namespace dslaunch
