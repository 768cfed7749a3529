#include "trainer/parallel/zero/parameter_gatherer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/Event.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/comm/with_context.h"
#include "trainer/device/streams.h"
#include "trainer/parallel/zero/access_trace.h"

namespace dslaunch {
namespace {

// PyTorch reserves this key for other libraries' modes and does not use it. It is handled before
// autograd and autocast.
constexpr c10::DispatchKey kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

// The gatherers of this thread that need the mode.
thread_local int mode_users = 0;

void EnterMode() {
  if (mode_users++ == 0) c10::impl::tls_set_dispatch_key_included(kMode, true);
}
void LeaveMode() {
  if (--mode_users == 0) c10::impl::tls_set_dispatch_key_included(kMode, false);
}

// Whether this thread runs a kernel of autocast.
thread_local bool in_autocast = false;

// Deleter that marks a storage as a unit's. Frees nothing, because the unit owns the memory.
void KeepMemory(void*) {}

// Deleter that marks the storage of a unit whose gatherer was destroyed.
void LostMemory(void*) {}

// Access to the flag that makes a storage throw when its memory is requested, because LibTorch can
// set it but not clear it. (An explicit instantiation may name a private member.)
bool& Throws(c10::StorageImpl& storage);
template <auto member>
struct ThrowsOnAccess {
  friend bool& Throws(c10::StorageImpl& storage) { return storage.*member; }
};
template struct ThrowsOnAccess<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

std::string NotGathered(const std::string& unit) {
  return "the parameters of " + unit + kNotGathered;
}

class Gatherer;

struct UnitState {
  Gatherer* owner = nullptr;
  size_t index = 0;
  int channel = 0;
  std::string name;
  at::Tensor flat;            // own version counter, because autograd must not see gathering
  at::Tensor shard;           // cast when copied into `flat` if dtypes differ
  UnitState* cast = nullptr;  // the same unit in autocast's dtype, once it was requested
  c10::DataPtr memory;
  // On a device: the stream in which the memory was allocated and gathering into it is ordered.
  std::optional<c10::Stream> stream;
  bool stays = false;
  bool live = false;                   // has memory
  PendingExchange arriving;            // exchange that fills the memory
  std::optional<c10::Event> uploaded;  // copy from the host, in a stream beside `stream`
  bool ahead = false;                  // live, but not used yet
  int held = 0;                        // calls of Unshard without Reshard
  int pinned = 0;                      // running operations that read it
  uint64_t last_use = 0;

  c10::StorageImpl& storage() const {
    return *flat.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  }
};

class Gatherer {
 public:
  Gatherer(const ShardExchange& exchange, int first_channel,
           std::vector<ParameterGatherer::Unit> units, const GatherLimits& limits)
      : exchange_(exchange),
        limits_(limits),
        reuse_distance_(limits.overlap
                            ? std::max(limits.max_reuse_distance, limits.prefetch_bucket_size)
                            : limits.max_reuse_distance),
        orders_{AccessTrace(Elements(units)), AccessTrace(Elements(units))} {
    for (size_t i = 0; i < units.size(); ++i) {
      UnitState& unit = units_.emplace_back();
      unit.owner = this;
      unit.index = i;
      unit.channel = first_channel + static_cast<int>(i);
      unit.name = std::move(units[i].name);
      unit.flat = units[i].flat.variable_data();
      unit.shard = std::move(units[i].shard);
      unit.stays = units[i].stays;
      releases_ |= !unit.stays;
      TORCH_CHECK(unit.flat.is_contiguous() && unit.flat.storage_offset() == 0 &&
                      unit.flat.numel() == exchange.world_size() * unit.shard.numel(),
                  "the unit ", unit.name, " is not a flat tensor of one shard for each rank");
      if (unit.stays) {
        Adopt(unit);
      } else {
        Release(unit);
      }
    }
    if (releases_) EnterMode();
  }

  ~Gatherer() {
    if (releases_) LeaveMode();
    if (refreshing_ && std::this_thread::get_id() == refresh_thread_) LeaveMode();
    for (UnitState& unit : units_) {
      if (unit.stays) {
        LetGo(unit);
        continue;
      }
      unit.arriving = {};  // must end before the memory is freed
      AwaitUpload(unit);
      unit.storage().set_data_ptr_noswap({nullptr, nullptr, &LostMemory, unit.flat.device()});
      unit.storage().release_data_and_set_meta_custom_data_ptr_error_msg_(
          "the parameters of " + unit.name +
          " were sharded by an engine (ZeRO stage 3) that was destroyed, so their values are lost; "
          "read them before that in a dslaunch::GatheredParameters, or save a checkpoint");
    }
    RestoreAutocastCache();
  }

  void CheckThread() const {
    if (!releases_) return;
    if (std::this_thread::get_id() == thread_) return;
    throw TrainError(
        ExitCode::kBadInput,
        "ZeRO stage 3 gathers parameters, for example those of " + units_.front().name +
            ", only in the thread that made the engine, but another thread needs them; call "
            "Initialize, Forward, Backward and GatheredParameters in one thread");
  }

  void Begin(bool trains) {
    // Operations of another thread would not wait, so everything is awaited here.
    if (refreshing_ && std::this_thread::get_id() != refresh_thread_) AwaitRefreshed();
    if (!releases_) return;
    CheckThread();
    End();
    const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
    open_ = true;
    order_ = &orders_[trains ? 1 : 0];
    order_->Begin();
    scanned_ = 0;
    counts_ = {};
    counts_.peak_live_elements = live_elements_;
    autocast_cached_ = at::autocast::is_autocast_cache_enabled();
    at::autocast::set_autocast_cache_enabled(false);
    Prefetch();
  }

  void End() {
    if (!open_) return;
    const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
    open_ = false;
    order_->End();
    RestoreAutocastCache();
    for (UnitState& unit : units_) {
      if (unit.live && unit.held == 0) Free(unit);
    }
  }

  void Unshard(const std::vector<size_t>& units) {
    CheckThread();
    const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
    for (const size_t index : units) {
      UnitState& unit = units_.at(index);
      ++unit.held;
      if (!unit.live) Start(unit);
    }
    for (const size_t index : units) Await(units_[index]);
  }

  void Reshard(const std::vector<size_t>& units, bool keep) {
    const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
    const at::NoGradGuard no_grad;
    for (const size_t index : units) {
      UnitState& unit = units_.at(index);
      TORCH_CHECK(unit.held > 0, "the unit ", unit.name, " is not held");
      if (keep) {
        unit.shard.copy_(OwnPart(unit));
        if (unit.cast != nullptr && unit.cast->live) Free(*unit.cast);
      }
      if (--unit.held == 0) Free(unit);
    }
  }

  void Refresh(const std::vector<size_t>& units) {
    const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
    Settle();
    for (const size_t index : units) {
      UnitState& unit = units_.at(index);
      TORCH_CHECK(unit.stays, "the unit ", unit.name, " does not stay");
      Ask(unit);
    }
    refreshing_ = true;
    refresh_thread_ = std::this_thread::get_id();
    EnterMode();
  }

  void Settle() {
    if (!refreshing_) return;
    AwaitRefreshed();
    if (std::this_thread::get_id() != refresh_thread_) return;  // another thread has its own mode
    refreshing_ = false;
    LeaveMode();
  }

  int64_t awaited_units() const {
    return std::ranges::count_if(
        units_, [](const UnitState& unit) { return unit.stays && unit.arriving.pending(); });
  }

  // Gathers the unit for an operation and holds it until Done.
  void Use(UnitState& unit, const c10::OperatorHandle& op, bool writes) {
    if (unit.stays) {
      Await(unit);
      return OrderForReader(unit);
    }
    if (unit.held == 0) Check(unit, op, writes);
    if (open_) order_->Use(unit.index);
    unit.last_use = ++clock_;
    if (!unit.live) {
      MakeRoom(unit.flat.numel(), /*place=*/-1);
      Start(unit);
    }
    Await(unit);
    OrderForReader(unit);
    if (unit.ahead) {
      unit.ahead = false;
      ahead_elements_ -= unit.flat.numel();
    }
    ++unit.pinned;
    if (open_) Prefetch();
  }

  void Done(UnitState& unit) noexcept {
    if (unit.stays) return;
    --unit.pinned;
    if (!open_ || unit.pinned > 0 || unit.held > 0 || !order_->followed()) return;
    if (order_->ElementsUntilNextUse(unit.index) > reuse_distance_) Free(unit);
  }

  // Returns the unit in another dtype, as a unit of its own that is gathered from the same shard.
  // Null if there is one in a third dtype already, or the whole unit may have been written to.
  UnitState* CastOf(UnitState& unit, at::ScalarType dtype) {
    if (!open_ || unit.held > 0 || unit.stays) return nullptr;
    if (unit.cast == nullptr) {
      UnitState& cast = units_.emplace_back();
      cast.owner = this;
      cast.index = units_.size() - 1;
      cast.channel = unit.channel;
      cast.name = unit.name;
      cast.flat = ParameterGatherer::MakeFlat(unit.flat.numel(), unit.flat.options().dtype(dtype));
      cast.shard = unit.shard;
      Release(cast);
      for (AccessTrace& order : orders_) order.AddUnit(cast.flat.numel());
      unit.cast = &cast;
    }
    return unit.cast->flat.scalar_type() == dtype ? unit.cast : nullptr;
  }

  bool live(size_t unit) const { return units_.at(unit).live; }
  int64_t live_elements() const { return live_elements_; }
  const GatherCounts& counts() const { return counts_; }

 private:
  static std::vector<int64_t> Elements(const std::vector<ParameterGatherer::Unit>& units) {
    std::vector<int64_t> elements;
    for (const auto& unit : units) elements.push_back(unit.flat.numel());
    return elements;
  }

  static void SetMemory(UnitState& unit, c10::DataPtr memory) {
    c10::StorageImpl& storage = unit.storage();
    unit.live = memory.get() != nullptr;
    // Views can be made; reading or writing a value without the mode throws, in every thread.
    Throws(storage) = !unit.live;
    storage.set_data_ptr_noswap({memory.get(), &unit, &KeepMemory, unit.flat.device()});
    unit.memory = std::move(memory);
  }

  // The first release: from now on reading the storage throws an error with the reason.
  static void Release(UnitState& unit) {
    unit.storage().release_data_and_set_meta_custom_data_ptr_error_msg_(NotGathered(unit.name));
    SetMemory(unit, {});
  }

  // Marks the storage of a unit that stays, which keeps its memory.
  static void Adopt(UnitState& unit) {
    c10::StorageImpl& storage = unit.storage();
    void* const data = storage.mutable_data();
    unit.memory = storage.set_data_ptr({data, &unit, &KeepMemory, unit.flat.device()});
    unit.live = true;
    unit.held = 1;
  }

  // Undoes Adopt. Waits for the unit's exchange first, unless an exception is in flight, because it
  // would write into memory that may have another use then.
  static void LetGo(UnitState& unit) {
    try {
      if (std::uncaught_exceptions() == 0) Await(unit);
    } catch (const std::exception&) {
      // Ranks have diverged. The next wait for them reports that.
    }
    unit.arriving = {};
    unit.storage().set_data_ptr(std::move(unit.memory));
  }

  static void AwaitUpload(const UnitState& unit) {
    try {
      if (unit.uploaded) unit.uploaded->synchronize();
    } catch (const std::exception&) {
      // A failed device writes nothing more. The next call that uses it throws.
    }
  }

  void AwaitRefreshed() {
    const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
    for (UnitState& unit : units_) {
      if (unit.stays) Await(unit);
    }
  }

  void RestoreAutocastCache() {
    if (!autocast_cached_) return;
    at::autocast::set_autocast_cache_enabled(true);
    autocast_cached_ = false;
  }

  void Check(const UnitState& unit, const c10::OperatorHandle& op, bool writes) const {
    if (open_ && !writes) return;
    const std::string what = op.operator_name().name + (writes ? " writes to" : " reads") +
                             " parameters of " + unit.name;
    throw TrainError(
        ExitCode::kBadInput,
        open_ ? what +
                    " during a pass, but ZeRO stage 3 discards such writes: change parameters "
                    "between steps, while a dslaunch::GatheredParameters holds them"
              : what +
                    ", but ZeRO stage 3 gathers them only during the engine's forward and "
                    "backward passes: run the model through engine.Forward, or make a "
                    "dslaunch::GatheredParameters of them first, on all ranks");
  }

  at::Tensor OwnPart(const UnitState& unit) const {
    const int64_t n = unit.shard.numel();
    return unit.flat.narrow(0, exchange_.rank() * n, n);
  }

  void Start(UnitState& unit) {
    const at::NoGradGuard no_grad;
    SetMemory(unit, c10::GetAllocator(unit.flat.device().type())->allocate(unit.flat.nbytes()));
    live_elements_ += unit.flat.numel();
    ++counts_.units;
    counts_.bytes += static_cast<int64_t>(unit.flat.nbytes());
    counts_.peak_live_elements = std::max(counts_.peak_live_elements, live_elements_);
    Ask(unit);
  }

  void Ask(UnitState& unit) {
    const at::NoGradGuard no_grad;
    if (!unit.flat.is_cpu()) unit.stream = CurrentStream(unit.flat.device());
    const bool uploads = !unit.stays && unit.shard.device() != unit.flat.device();
    const c10::OptionalStreamGuard beside(uploads ? StreamForUpload(unit) : std::nullopt);
    if (!unit.stays) OwnPart(unit).copy_(unit.shard, /*non_blocking=*/true);
    unit.arriving = WithContext("gathering the parameters of " + unit.name, [&] {
      return exchange_.AllGather({unit.flat, unit.channel, "the parameters of " + unit.name});
    });
    if (uploads) unit.uploaded.emplace(unit.flat.device().type()).record(*upload_stream_);
  }

  // Returns the stream that copies shards from the host beside operations, ordered after the
  // earlier uses of the unit's memory.
  std::optional<c10::Stream> StreamForUpload(const UnitState& unit) {
    if (!upload_stream_) upload_stream_ = OtherStream(unit.flat.device());
    OrderAfter(*upload_stream_, *unit.stream);
    return upload_stream_;
  }

  static void Await(UnitState& unit) {
    if (!unit.arriving.pending() && !unit.uploaded) return;
    // On a device the stream waits, not the host.
    const c10::OptionalStreamGuard allocated_in(unit.stream);
    WithContext("gathering the parameters of " + unit.name, [&] { unit.arriving.Wait(); });
    if (unit.uploaded) unit.uploaded->block(*unit.stream);
    unit.uploaded.reset();
  }

  // Orders an operation in another stream than the unit's after the work that the unit's stream has
  // now, and before the next use of the memory.
  static void OrderForReader(const UnitState& unit) {
    if (!unit.stream) return;
    const c10::Stream reader = CurrentStream(unit.flat.device());
    if (reader == *unit.stream) return;
    OrderAfter(reader, *unit.stream);
    KeepFor(unit.memory, reader);
  }

  void Free(UnitState& unit) {
    Await(unit);
    SetMemory(unit, {});
    live_elements_ -= unit.flat.numel();
    if (unit.ahead) {
      unit.ahead = false;
      ahead_elements_ -= unit.flat.numel();
    }
    // Prefetching may have skipped its next use because the unit was live.
    if (open_ && order_->followed()) scanned_ = std::min(scanned_, order_->NextUse(unit.index));
  }

  int64_t Limit() const {
    if (!open_) return std::numeric_limits<int64_t>::max();
    if (order_->followed()) return limits_.max_live_parameters;
    return std::min(limits_.max_live_parameters, limits_.max_reuse_distance);
  }

  // Frees units until there is room for so many elements. Units whose next expected use is before
  // `place` stay; returns false if that leaves no room.
  bool MakeRoom(int64_t elements, int64_t place) {
    while (live_elements_ + elements > Limit()) {
      UnitState* last = nullptr;
      int64_t last_place = 0;
      for (UnitState& unit : units_) {
        if (!unit.live || unit.held > 0 || unit.pinned > 0) continue;
        const int64_t next = order_->followed() ? order_->NextUse(unit.index) : AccessTrace::kNever;
        if (last == nullptr || next > last_place ||
            (next == last_place && unit.last_use < last->last_use)) {
          last = &unit;
          last_place = next;
        }
      }
      if (last == nullptr || last_place <= place) return false;
      Free(*last);
    }
    return true;
  }

  void Prefetch() {
    if (!limits_.overlap || !order_->followed()) return;
    const auto& expected = order_->expected();
    for (scanned_ = std::max(scanned_, order_->place());
         scanned_ < static_cast<int64_t>(expected.size()); ++scanned_) {
      UnitState& unit = units_[expected[static_cast<size_t>(scanned_)]];
      if (unit.live) continue;
      const int64_t elements = unit.flat.numel();
      if (ahead_elements_ + elements > limits_.prefetch_bucket_size) return;
      if (!MakeRoom(elements, scanned_)) return;
      Start(unit);
      unit.ahead = true;
      unit.last_use = ++clock_;
      ahead_elements_ += elements;
      ++counts_.ahead;
    }
  }

  const ShardExchange& exchange_;
  const GatherLimits limits_;
  const int64_t reuse_distance_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::deque<UnitState> units_;  // never moved: storages point to them

  std::optional<c10::Stream> upload_stream_;
  bool releases_ = false;    // whether some unit does not stay
  bool refreshing_ = false;  // since Refresh, in this thread:
  std::thread::id refresh_thread_;
  bool open_ = false;
  std::array<AccessTrace, 2> orders_;  // inference, training
  AccessTrace* order_ = &orders_[0];   // the last pass'
  int64_t scanned_ = 0;                // expected uses before it are live or being gathered
  int64_t ahead_elements_ = 0;
  int64_t live_elements_ = 0;
  uint64_t clock_ = 0;
  GatherCounts counts_;
  bool autocast_cached_ = false;  // whether autocast's cache is on outside of passes
};

struct UnitInput {
  UnitState* unit;
  bool writes;
  bool view;  // the operation returns a view of it, and does not read it
};

void AddUnit(const c10::IValue& value, const c10::Argument& argument,
             c10::SmallVectorImpl<UnitInput>& inputs) {
  const at::TensorImpl* impl = value.unsafeToTensorImpl();
  if (!impl->has_storage()) return;
  // No checks, because a storage of a model that is constructed without memory fails them.
  const c10::DataPtr& data =
      impl->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get_deleter() != &KeepMemory) return;
  auto* unit = static_cast<UnitState*>(data.get_context());
  const c10::AliasInfo* alias = argument.alias_info();
  const bool writes = alias != nullptr && alias->isWrite();
  for (UnitInput& input : inputs) {
    if (input.unit != unit) continue;
    input.writes |= writes;
    input.view &= alias != nullptr;
    return;
  }
  inputs.push_back({unit, writes, alias != nullptr});
}

// For operations that take a storage itself, as torch::save's on a device.
void CheckHasMemory(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get_deleter() != &KeepMemory || data.get() != nullptr) return;
  throw TrainError(ExitCode::kBadInput,
                   NotGathered(static_cast<const UnitState*>(data.get_context())->name));
}

c10::SmallVector<UnitInput, 4> FindUnits(const c10::OperatorHandle& op,
                                         const torch::jit::Stack& stack) {
  c10::SmallVector<UnitInput, 4> inputs;
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (value.isTensor()) {
      AddUnit(value, arguments[i], inputs);
    } else if (value.isStorage()) {
      CheckHasMemory(value.toStorage());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          AddUnit(element, arguments[i], inputs);
        } else if (!element.isNone()) {
          break;
        }
      }
    }
  }
  return inputs;
}

// Whether autocast will cast the operation's inputs and then run it again.
bool IsAutocast(const c10::OperatorHandle& op, const UnitState& unit) {
  const c10::DeviceType device = unit.flat.device().type();
  return at::autocast::is_autocast_enabled(device) &&
         op.hasKernelForDispatchKey(
             at::autocast::get_autocast_dispatch_key_from_device_type(device));
}

// Whether the operation is made of others, which the mode sees one by one.
bool IsComposite(const c10::OperatorHandle& op, const UnitState& unit) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::legacyExtractDispatchKey(unit.flat.key_set()));
}

// Makes views of released units possible in operations that compare storages by their memory.
class ViewScope {
 public:
  explicit ViewScope(c10::ArrayRef<UnitInput> inputs) {
    for (const UnitInput& input : inputs) {
      if (input.unit->live) continue;
      Throws(input.unit->storage()) = false;
      units_.push_back(input.unit);
    }
  }
  ~ViewScope() {
    for (const UnitState* unit : units_) Throws(unit->storage()) = true;
  }
  ViewScope(const ViewScope&) = delete;
  ViewScope& operator=(const ViewScope&) = delete;

 private:
  c10::SmallVector<const UnitState*, 4> units_;
};

// Replaces autocast's copy of a parameter, which autograd would keep whole from the forward pass to
// the backward pass, by a view of a unit in that dtype, which is gathered from cast shards.
class Cast : public torch::autograd::Function<Cast> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& parameter,
                            UnitState* cast) {
    context->saved_data["dtype"] = parameter.scalar_type();
    const ViewScope scope({{cast, /*writes=*/false, /*view=*/true}});
    return at::empty({0}, cast->flat.options())
        .set_(cast->flat.storage(), parameter.storage_offset(), parameter.sizes(),
              parameter.strides());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].to(context->saved_data["dtype"].toScalarType()), {}};
  }
};

// Returns whether `stack` held the arguments of such a copy; it then holds the result.
bool RunCast(const c10::OperatorHandle& op, UnitState& unit, torch::jit::Stack* stack) {
  if (!in_autocast || op.operator_name().name != "aten::_to_copy") return false;
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor parameter = (*stack)[first].toTensor();
  const auto dtype = (*stack)[first + 1].toOptional<at::ScalarType>();
  if (!dtype || parameter.is_conj() || parameter.is_neg()) return false;
  UnitState* cast = unit.owner->CastOf(unit, *dtype);
  if (cast == nullptr) return false;
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, Cast::apply(parameter, cast));
  return true;
}

class Lease {
 public:
  explicit Lease(const c10::OperatorHandle& op) : op_(op) {}
  ~Lease() {
    for (UnitState* unit : units_) unit->owner->Done(*unit);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  void Add(const UnitInput& input) {
    input.unit->owner->Use(*input.unit, op_, input.writes);
    units_.push_back(input.unit);
  }

 private:
  const c10::OperatorHandle& op_;
  c10::SmallVector<UnitState*, 4> units_;
};

void RunOperation(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kMode);
  const c10::SmallVector<UnitInput, 4> inputs = FindUnits(op, *stack);
  if (inputs.empty()) {
    op.redispatchBoxed(below, stack);
    return;
  }
  if (IsAutocast(op, *inputs[0].unit)) {
    const auto leave =
        c10::make_scope_exit([before = std::exchange(in_autocast, true)] { in_autocast = before; });
    op.redispatchBoxed(below, stack);
    return;
  }
  if (IsComposite(op, *inputs[0].unit)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  // The parts of the operation read the units that are held for it.
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kMode);
  if (RunCast(op, *inputs[0].unit, stack)) return;
  const bool view = std::all_of(inputs.begin(), inputs.end(),
                                [](const UnitInput& input) { return input.view && !input.writes; });
  if (view) {
    const ViewScope scope(inputs);
    op.redispatchBoxed(below, stack);
    return;
  }
  Lease lease(op);
  for (const UnitInput& input : inputs) lease.Add(input);
  op.redispatchBoxed(below, stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOperation>());
}

}  // namespace

class ParameterGatherer::Impl : public Gatherer {
  using Gatherer::Gatherer;
};

ParameterGatherer::ParameterGatherer(const ShardExchange& exchange, int first_channel,
                                     std::vector<Unit> units, const GatherLimits& limits)
    : impl_(std::make_unique<Impl>(exchange, first_channel, std::move(units), limits)) {}
ParameterGatherer::~ParameterGatherer() = default;

at::Tensor ParameterGatherer::MakeFlat(int64_t elements, const at::TensorOptions& options) {
  const auto bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             c10::DataPtr(nullptr, options.device()), /*allocator=*/nullptr);
  return at::empty({0}, options).set_(storage, 0, {elements}, {1});
}

ParameterGatherer::Owner ParameterGatherer::OwnerOf(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return Owner::kOther;
  const c10::DataPtr& data = tensor.unsafeGetTensorImpl()
                                 ->unsafe_storage()
                                 .unsafeGetStorageImpl()
                                 ->_mutable_data_ptr_no_checks();
  const auto deleter = data.get_deleter();
  if (deleter == &KeepMemory) {
    const auto* const unit = static_cast<const UnitState*>(data.get_context());
    return unit->stays ? Owner::kOther : Owner::kGatherer;
  }
  return deleter == &LostMemory ? Owner::kGoneGatherer : Owner::kOther;
}

void ParameterGatherer::Begin(bool trains) { impl_->Begin(trains); }
void ParameterGatherer::End() { impl_->End(); }
void ParameterGatherer::CheckThread() const { impl_->CheckThread(); }
void ParameterGatherer::Unshard(const std::vector<size_t>& units) { impl_->Unshard(units); }
void ParameterGatherer::Reshard(const std::vector<size_t>& units, bool keep) {
  impl_->Reshard(units, keep);
}
void ParameterGatherer::Refresh(const std::vector<size_t>& units) { impl_->Refresh(units); }
void ParameterGatherer::Settle() { impl_->Settle(); }
int64_t ParameterGatherer::awaited_units() const { return impl_->awaited_units(); }
bool ParameterGatherer::live(size_t unit) const { return impl_->live(unit); }
int64_t ParameterGatherer::live_elements() const { return impl_->live_elements(); }
const GatherCounts& ParameterGatherer::counts() const { return impl_->counts(); }

}  // namespace dslaunch
