#include "trainer/parallel/zero/gather_mode.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

// Number of gatherers of this thread that need the mode.
thread_local int mode_users = 0;

// True while this thread runs a kernel of autocast.
thread_local bool in_autocast = false;

struct UnitInput {
  GatheredUnit* unit;
  bool writes;
  bool view;  // true if the operation only returns a view of the unit and does not read its values
};

void AddUnit(const c10::IValue& value, const c10::Argument& argument,
             c10::SmallVectorImpl<UnitInput>& inputs) {
  const at::TensorImpl* impl = value.unsafeToTensorImpl();
  if (!impl->has_storage()) return;
  GatheredUnit* const unit = GatheredUnit::Of(*impl->unsafe_storage().unsafeGetStorageImpl());
  if (unit == nullptr) return;
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

// Throws unless the unit with this storage has memory. Needed for operations that take a storage,
// such as those of torch::save on a device.
void CheckHasMemory(const c10::Storage& storage) {
  const GatheredUnit* const unit = GatheredUnit::Of(*storage.unsafeGetStorageImpl());
  if (unit == nullptr || unit->live()) return;
  throw TrainError(ExitCode::kBadInput, unit->NotGatheredText());
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

// Returns whether autocast will cast the operation's inputs and then dispatch the operation again.
bool IsAutocast(const c10::OperatorHandle& op, const GatheredUnit& unit) {
  const c10::DeviceType device = unit.flat().device().type();
  return at::autocast::is_autocast_enabled(device) &&
         op.hasKernelForDispatchKey(
             at::autocast::get_autocast_dispatch_key_from_device_type(device));
}

// Returns whether the operation is a composition of other operations, each of which the mode
// intercepts.
bool IsComposite(const c10::OperatorHandle& op, const GatheredUnit& unit) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::legacyExtractDispatchKey(unit.flat().key_set()));
}

// Allows operations that compare storages by their memory to create views of released units. Lasts
// for the lifetime of the object.
class ViewScope {
 public:
  explicit ViewScope(c10::ArrayRef<UnitInput> inputs) {
    for (const UnitInput& input : inputs) {
      if (input.unit->live()) continue;
      input.unit->RefuseAccess(false);
      units_.push_back(input.unit);
    }
  }
  ~ViewScope() {
    for (GatheredUnit* unit : units_) unit->RefuseAccess(true);
  }
  ViewScope(const ViewScope&) = delete;
  ViewScope& operator=(const ViewScope&) = delete;

 private:
  c10::SmallVector<GatheredUnit*, 4> units_;
};

// Replaces autocast's copy of a parameter by a view of a unit in autocast's dtype, which is
// gathered from cast shards. Autograd would keep a whole copy from the forward pass to the backward
// pass.
class Cast : public torch::autograd::Function<Cast> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& parameter,
                            GatheredUnit* cast) {
    context->saved_data["dtype"] = parameter.scalar_type();
    const ViewScope scope({{cast, /*writes=*/false, /*view=*/true}});
    return at::empty({0}, cast->flat().options())
        .set_(cast->flat().storage(), parameter.storage_offset(), parameter.sizes(),
              parameter.strides());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].to(context->saved_data["dtype"].toScalarType()), {}};
  }
};

// Replaces the arguments of an autocast copy on `stack` by the result. Returns false if `stack`
// does not hold such arguments.
bool RunCast(const c10::OperatorHandle& op, GatheredUnit& unit, torch::jit::Stack* stack) {
  if (!in_autocast || op.operator_name().name != "aten::_to_copy") return false;
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor parameter = (*stack)[first].toTensor();
  const auto dtype = (*stack)[first + 1].toOptional<at::ScalarType>();
  if (!dtype || parameter.is_conj() || parameter.is_neg()) return false;
  GatheredUnit* cast = unit.owner().CastOf(unit, *dtype);
  if (cast == nullptr) return false;
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, Cast::apply(parameter, cast));
  return true;
}

class Lease {
 public:
  explicit Lease(const c10::OperatorHandle& op) : op_(op) {}
  ~Lease() {
    for (GatheredUnit* unit : units_) unit->owner().Done(*unit);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  void Add(const UnitInput& input) {
    input.unit->owner().Use(*input.unit, op_, input.writes);
    units_.push_back(input.unit);
  }

 private:
  const c10::OperatorHandle& op_;
  c10::SmallVector<GatheredUnit*, 4> units_;
};

void RunOperation(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kGatherMode);
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
  // The operation's inner operations read the units that are gathered here, so the mode is off for
  // them.
  const c10::impl::ExcludeDispatchKeyGuard no_mode(kGatherMode);
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

void EnterGatherMode() {
  if (mode_users++ == 0) c10::impl::tls_set_dispatch_key_included(kGatherMode, true);
}

void LeaveGatherMode() {
  if (--mode_users == 0) c10::impl::tls_set_dispatch_key_included(kGatherMode, false);
}

}  // namespace dslaunch
