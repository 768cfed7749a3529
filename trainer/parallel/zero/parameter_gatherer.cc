#include "trainer/parallel/zero/parameter_gatherer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/base/train_error.h"

namespace dslaunch {

ParameterGatherer::ParameterGatherer(const ShardExchange& exchange, int first_channel,
                                     std::vector<Unit> units, const GatherLimits& limits)
    : exchange_(exchange), schedule_(limits) {
  for (size_t i = 0; i < units.size(); ++i) {
    releases_ |= !units[i].stays;
    AddUnit(first_channel + static_cast<int>(i), std::move(units[i]));
  }
  if (releases_) EnterGatherMode();
}

ParameterGatherer::~ParameterGatherer() {
  if (releases_) LeaveGatherMode();
  if (refreshing_ && std::this_thread::get_id() == refresh_thread_) LeaveGatherMode();
  RestoreAutocastCache();
}

at::Tensor ParameterGatherer::MakeFlat(int64_t elements, const at::TensorOptions& options) {
  const auto bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             c10::DataPtr(nullptr, options.device()), /*allocator=*/nullptr);
  return at::empty({0}, options).set_(storage, 0, {elements}, {1});
}

ParameterGatherer::Owner ParameterGatherer::OwnerOf(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return Owner::kOther;
  c10::StorageImpl& storage =
      *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (const GatheredUnit* const unit = GatheredUnit::Of(storage)) {
    return unit->stays() ? Owner::kOther : Owner::kGatherer;
  }
  return GatheredUnit::IsLost(storage) ? Owner::kGoneGatherer : Owner::kOther;
}

void ParameterGatherer::AddUnit(int channel, Unit description) {
  schedule_.AddUnit(description.flat.numel(), description.stays);
  UnitGatherer& owner = *this;  // converted here, because the base class is private
  units_.emplace_back(owner, units_.size(), exchange_, channel, std::move(description));
  casts_.push_back(nullptr);
}

void ParameterGatherer::CheckThread() const {
  if (!releases_) return;
  if (std::this_thread::get_id() == thread_) return;
  throw TrainError(
      ExitCode::kBadInput,
      "ZeRO stage 3 gathers parameters, for example those of " + units_.front().name() +
          ", only in the thread that made the engine, but another thread needs them; call "
          "Initialize, Forward, Backward and GatheredParameters in one thread");
}

void ParameterGatherer::Begin(bool trains) {
  // The dispatch mode of Refresh is in another thread, so operations here would not wait for the
  // units.
  if (refreshing_ && std::this_thread::get_id() != refresh_thread_) AwaitRefreshed();
  if (!releases_) return;
  CheckThread();
  End();
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
  schedule_.Begin(trains);
  counts_ = {};
  counts_.peak_live_elements = live_elements();
  autocast_cached_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_cache_enabled(false);
  GatherAhead();
}

void ParameterGatherer::End() {
  if (!schedule_.in_pass()) return;
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
  schedule_.End();
  RestoreAutocastCache();
  for (GatheredUnit& unit : units_) {
    if (schedule_.IsLive(unit.index()) && !schedule_.IsHeld(unit.index())) Free(unit);
  }
}

void ParameterGatherer::Unshard(const std::vector<size_t>& units) {
  CheckThread();
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
  for (const size_t index : units) {
    schedule_.Hold(index);
    if (!schedule_.IsLive(index)) Gather(units_[index], /*ahead=*/false);
  }
  for (const size_t index : units) units_[index].Await();
}

void ParameterGatherer::Reshard(const std::vector<size_t>& units, bool keep) {
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
  const at::NoGradGuard no_grad;
  for (const size_t index : units) {
    GatheredUnit& unit = units_.at(index);
    TORCH_CHECK(schedule_.IsHeld(index), "the unit ", unit.name(), " is not held");
    if (keep) {
      unit.StoreShard();
      if (GatheredUnit* const cast = casts_[index]; cast != nullptr && cast->live()) Free(*cast);
    }
    if (schedule_.Unhold(index)) Free(unit);
  }
}

void ParameterGatherer::Refresh(const std::vector<size_t>& units) {
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
  Settle();
  for (const size_t index : units) {
    GatheredUnit& unit = units_.at(index);
    TORCH_CHECK(unit.stays(), "the unit ", unit.name(), " does not stay");
    unit.Request(upload_stream_);
  }
  refreshing_ = true;
  refresh_thread_ = std::this_thread::get_id();
  EnterGatherMode();
}

void ParameterGatherer::Settle() {
  if (!refreshing_) return;
  AwaitRefreshed();
  if (std::this_thread::get_id() != refresh_thread_) return;  // another thread has its own mode
  refreshing_ = false;
  LeaveGatherMode();
}

int64_t ParameterGatherer::awaited_units() const {
  return std::ranges::count_if(
      units_, [](const GatheredUnit& unit) { return unit.stays() && unit.is_requested(); });
}

bool ParameterGatherer::live(size_t unit) const { return units_.at(unit).live(); }

void ParameterGatherer::Use(GatheredUnit& unit, const c10::OperatorHandle& op, bool writes) {
  const size_t index = unit.index();
  if (!unit.stays()) {
    if (!schedule_.IsHeld(index)) Check(unit, op, writes);
    schedule_.Read(index);
    while (const auto action = schedule_.NextFor(index)) Follow(*action);
  }
  unit.Await();
  unit.OrderForReader();
  if (unit.stays()) return;
  schedule_.Pin(index);
  GatherAhead();
}

void ParameterGatherer::Done(GatheredUnit& unit) noexcept {
  if (unit.stays()) return;
  if (schedule_.Unpin(unit.index())) Free(unit);
}

// Also returns null if the unit exists in a third dtype already, or if the whole unit may have been
// written to.
GatheredUnit* ParameterGatherer::CastOf(GatheredUnit& unit, at::ScalarType dtype) {
  const size_t index = unit.index();
  if (!schedule_.in_pass() || schedule_.IsHeld(index)) return nullptr;
  if (casts_[index] == nullptr) {
    AddUnit(unit.channel(),
            {.name = unit.name(),
             .flat = MakeFlat(unit.flat().numel(), unit.flat().options().dtype(dtype)),
             .shard = unit.shard()});
    casts_[index] = &units_.back();
  }
  return casts_[index]->flat().scalar_type() == dtype ? casts_[index] : nullptr;
}

void ParameterGatherer::Check(const GatheredUnit& unit, const c10::OperatorHandle& op,
                              bool writes) const {
  if (schedule_.in_pass() && !writes) return;
  const std::string what = op.operator_name().name + (writes ? " writes to" : " reads") +
                           " parameters of " + unit.name();
  throw TrainError(
      ExitCode::kBadInput,
      schedule_.in_pass()
          ? what +
                " during a pass, but ZeRO stage 3 discards such writes: change parameters "
                "between steps, while a dslaunch::GatheredParameters holds them"
          : what +
                ", but ZeRO stage 3 gathers them only during the engine's forward and "
                "backward passes: run the model through engine.Forward, or make a "
                "dslaunch::GatheredParameters of them first, on all ranks");
}

void ParameterGatherer::Follow(const GatherAction& action) {
  GatheredUnit& unit = units_[action.unit];
  if (action.kind == GatherAction::Kind::kRelease) return Free(unit);
  Gather(unit, action.kind == GatherAction::Kind::kGatherAhead);
}

void ParameterGatherer::Gather(GatheredUnit& unit, bool ahead) {
  unit.Allocate();
  schedule_.Gathered(unit.index(), ahead);
  ++counts_.units;
  if (ahead) ++counts_.ahead;
  counts_.bytes += static_cast<int64_t>(unit.flat().nbytes());
  counts_.peak_live_elements = std::max(counts_.peak_live_elements, live_elements());
  unit.Request(upload_stream_);
}

void ParameterGatherer::GatherAhead() {
  while (const auto action = schedule_.NextAhead()) Follow(*action);
}

void ParameterGatherer::Free(GatheredUnit& unit) {
  unit.Free();
  schedule_.Released(unit.index());
}

void ParameterGatherer::AwaitRefreshed() {
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
  for (GatheredUnit& unit : units_) {
    if (unit.stays()) unit.Await();
  }
}

void ParameterGatherer::RestoreAutocastCache() {
  if (!autocast_cached_) return;
  at::autocast::set_autocast_cache_enabled(true);
  autocast_cached_ = false;
}

}  // namespace dslaunch
