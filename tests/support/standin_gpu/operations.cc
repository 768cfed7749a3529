#include "tests/support/standin_gpu/operations.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tests/support/standin_gpu/generator.h"
#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/tensors.h"

namespace dslaunch::standin {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Returns `value` with each tensor in it replaced by f(tensor).
template <class F>
c10::IValue MapTensors(const c10::IValue& value, const F& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(f(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<Tensor>(f(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// Applies MapTensors to each value of a stack, and replaces devices of the stand-in type by
// `device`.
template <class F>
Stack MapStack(const Stack& stack, c10::Device device, const F& f) {
  Stack mapped;
  for (const c10::IValue& value : stack) {
    const bool ours = value.isDevice() && value.toDevice().type() == kDeviceType;
    mapped.push_back(ours ? c10::IValue(device) : MapTensors(value, f));
  }
  return mapped;
}

// Properties of an operation from its schema.
struct Traits {
  bool waits = false;        // the result depends on values that only the device has
  bool new_results = false;  // all results are new tensors
  bool out = false;          // the operation writes to arguments, and may resize them
  bool same_device = true;   // CPU tensors with one element, and CPU indexes, are refused
  std::optional<size_t> generator;
  std::vector<bool> writes;  // whether the operation writes each argument
  std::vector<std::optional<size_t>>
      is_argument;  // argument that each result is; nullopt if the result is a new tensor
};

bool IsWrite(const c10::AliasInfo* alias) { return alias != nullptr && alias->isWrite(); }

Traits ReadTraits(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  Traits traits;
  traits.waits =
      op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  traits.new_results = !schema.returns().empty();
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.type()->str().find("Generator") != std::string::npos) {
      traits.generator = traits.writes.size();
    }
    traits.writes.push_back(IsWrite(argument.alias_info()));
    traits.out = traits.out || argument.is_out();
  }
  for (const c10::Argument& result : schema.returns()) {
    traits.waits = traits.waits || result.type()->str().find("Tensor") == std::string::npos;
    std::optional<size_t> place;
    if (const c10::AliasInfo* const alias = result.alias_info()) {
      TORCH_CHECK(IsWrite(alias), "standin: ", op.operator_name(),
                  " returns a view, so it needs a kernel of its own");
      traits.new_results = false;
      for (size_t i = 0; i < schema.arguments().size() && !place; ++i) {
        const c10::AliasInfo* const other = schema.arguments()[i].alias_info();
        if (other != nullptr && other->beforeSets() == alias->beforeSets()) place = i;
      }
    }
    traits.is_argument.push_back(place);
  }
  // CUDA's fused optimizers read their state in one kernel, so that state must be on the device.
  traits.same_device = schema.name().starts_with("aten::_fused_");
  return traits;
}

const Traits& TraitsOf(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* const known =
      new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Traits>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Traits>& traits = (*known)[&op.schema()];
  if (!traits) traits = std::make_unique<Traits>(ReadTraits(op));
  return *traits;
}

bool TakesCpuIndexes(const std::string& name) {
  return name == "aten::index" || name == "aten::index_put" || name == "aten::index_put_" ||
         name == "aten::_index_put_impl_" || name == "aten::_unsafe_index" ||
         name == "aten::_unsafe_index_put";
}

// Returns the device that all arguments share. Throws c10::Error if they are on several devices.
c10::Device CommonDevice(const c10::OperatorHandle& op, const Traits& traits,
                         const Stack& arguments) {
  const std::string& name = op.schema().name();
  std::optional<c10::Device> common;
  const auto check = [&](const Tensor& tensor) {
    if (!tensor.defined() || tensor.is_meta()) return tensor;
    const bool by_value = !traits.same_device && (tensor.dim() == 0 || TakesCpuIndexes(name));
    if (tensor.is_cpu() && by_value) return tensor;
    if (!common && IsOnDevice(tensor)) common = tensor.device();
    const c10::Device expected = common.value_or(c10::Device(kDeviceType, CurrentDevice()));
    TORCH_CHECK(tensor.device() == expected,
                "Expected all tensors to be on the same device, but found ", expected, " and ",
                tensor.device(), " (", name, ")");
    return tensor;
  };
  for (const c10::IValue& value : arguments) {
    MapTensors(value, check);
    if (value.isDevice() && value.toDevice().type() == kDeviceType && !common &&
        value.toDevice().has_index()) {
      common = value.toDevice();
    }
  }
  return common.value_or(c10::Device(kDeviceType, CurrentDevice()));
}

Tensor LikeOn(const Tensor& tensor, c10::Device device) {
  const at::TensorOptions options = tensor.options().device(device);
  Tensor like = device.is_meta() ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                                 : at::zeros(tensor.sizes(), options);
  KeepWrappedNumber(tensor, like);
  return like;
}

// Runs the operation on tensors like the arguments, on `device`, and returns its results. Stores
// the substituted arguments in `given`.
Stack RunOnLikes(const c10::OperatorHandle& op, const Stack& arguments, c10::Device device,
                 Stack* given) {
  const PlainDispatch plain;
  Stack stack = MapStack(arguments, device, [&](const Tensor& tensor) {
    return IsOnDevice(tensor) ? LikeOn(tensor, device) : tensor;
  });
  for (c10::IValue& value : stack) {
    if (value.isGenerator()) value = c10::IValue();
  }
  *given = stack;
  op.callBoxed(&stack);
  return stack;
}

// Returns tensors with the shapes and dtypes of the results: from the operation's meta kernel, or
// from a run on zeros if LibTorch has no meta kernel.
Stack ShapesOfResults(const c10::OperatorHandle& op, const Stack& arguments, Stack* given) {
  static std::mutex mutex;
  static auto* const without_meta = new std::unordered_set<const c10::FunctionSchema*>;
  bool meta = true;
  {
    const std::lock_guard lock(mutex);
    meta = !without_meta->contains(&op.schema());
  }
  if (meta) {
    try {
      return RunOnLikes(op, arguments, c10::kMeta, given);
    } catch (const c10::NotImplementedError&) {
      const std::lock_guard lock(mutex);
      without_meta->insert(&op.schema());
    }
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const Tensor drawn = generator.get_state();
  Stack results = RunOnLikes(op, arguments, c10::kCPU, given);
  generator.set_state(drawn);
  return results;
}

// One call of an operation: its arguments, its device and its results.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op),
        traits_(TraitsOf(op)),
        arguments_(torch::jit::pop(*stack, op.schema().arguments().size())),
        device_(CommonDevice(op, traits_, arguments_)),
        results_(*stack) {}

  void Run() {
    const c10::DeviceGuard guard(device_);
    if (traits_.generator && arguments_[*traits_.generator].isGenerator()) {
      generator_ = arguments_[*traits_.generator].toGenerator().unsafeGetGeneratorImpl();
    }
    if (traits_.waits) {
      RunNow();
    } else {
      RunLater();
    }
  }

 private:
  const char* name() const { return op_.schema().name().c_str(); }
  c10::Stream stream() const { return CurrentStream(device_.index()); }

  std::vector<Touch> TouchesOfArguments() const {
    std::vector<Touch> touches;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      MapTensors(arguments_[i], [&](const Tensor& tensor) {
        touches.push_back(TouchOf(tensor, traits_.writes[i]));
        return tensor;
      });
    }
    return touches;
  }

  void RunNow() {
    CheckMayWait(name(), /*hidden=*/true);
    Enqueue(stream(), {.name = name(), .touches = TouchesOfArguments(), .kernel = {}});
    DrainStream(NumberOf(stream()));
    ThrowKernelError();
    const PlainDispatch plain;
    Stack cpu = MapStack(arguments_, c10::kCPU, &KernelAlias);
    if (traits_.generator) {
      cpu[*traits_.generator] =
          at::detail::createCPUGenerator(DrawSeed(generator_, device_.index()));
    }
    op_.callBoxed(&cpu);
    for (const c10::IValue& result : cpu) {
      results_.push_back(MapTensors(result, [&](const Tensor& tensor) {
        return tensor.defined() ? tensor.to(device_) : tensor;
      }));
    }
  }

  void RunLater() {
    Stack given, shapes;
    if (traits_.new_results || traits_.out) shapes = ShapesOfResults(op_, arguments_, &given);
    if (traits_.out) ResizeOutputs(given);
    Stack cpu = MapStack(arguments_, c10::kCPU, [](const Tensor& tensor) {
      if (IsOnDevice(tensor) || !tensor.defined()) return KernelAlias(tensor);
      Tensor copy = tensor.clone();  // because the launch must keep the value of this moment
      KeepWrappedNumber(tensor, copy);
      return copy;
    });
    Launch launch{.name = name(), .touches = TouchesOfArguments(), .kernel = {}};
    std::vector<std::vector<Tensor>> into = MakeResults(shapes, &launch.touches);
    if (traits_.generator) {
      launch.draw = [generator = generator_, index = device_.index()] {
        return DrawSeed(generator, index);
      };
    }
    launch.kernel = [op = op_, generator = traits_.generator, cpu = std::move(cpu),
                     into = std::move(into)](uint64_t seed) {
      const PlainDispatch plain;
      Stack stack = cpu;
      if (generator) stack[*generator] = at::detail::createCPUGenerator(seed);
      op.callBoxed(&stack);
      for (size_t i = 0; i < into.size(); ++i) {
        size_t k = 0;
        if (!into[i].empty()) {
          MapTensors(stack[i], [&](const Tensor& tensor) {
            Store(op, tensor, into[i][k++]);
            return tensor;
          });
        }
      }
    };
    Enqueue(stream(), std::move(launch));
  }

  static void Store(const c10::OperatorHandle& op, const Tensor& from, Tensor to) {
    if (!to.defined()) return;
    TORCH_CHECK(to.sizes() == from.sizes(), "standin: the result of ", op.operator_name(),
                " has the shape ", from.sizes(), " and not ", to.sizes());
    to.copy_(from);
  }

  void ResizeOutputs(const Stack& given) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!op_.schema().arguments()[i].is_out() || !arguments_[i].isTensor()) continue;
      const Tensor& like = given[i].toTensor();
      const Tensor& real = arguments_[i].toTensor();
      if (real.sizes() != like.sizes()) ResizeTensor(real, like.sizes(), like.strides());
    }
  }

  // Stores the results for the caller's stack. Returns, for each result, the memory of its new
  // tensors as kernels access it.
  std::vector<std::vector<Tensor>> MakeResults(const Stack& shapes, std::vector<Touch>* touches) {
    std::vector<std::vector<Tensor>> into(traits_.is_argument.size());
    for (size_t i = 0; i < into.size(); ++i) {
      if (traits_.is_argument[i]) {
        results_.push_back(arguments_[*traits_.is_argument[i]]);
        continue;
      }
      results_.push_back(MapTensors(shapes[i], [&](const Tensor& like) {
        const Tensor fresh = like.defined() ? at::empty_strided(like.sizes(), like.strides(),
                                                                like.options().device(device_))
                                            : like;
        touches->push_back(TouchOf(fresh, /*write=*/true));
        into[i].push_back(KernelAlias(fresh));
        return fresh;
      }));
    }
    return into;
  }

  const c10::OperatorHandle op_;
  const Traits& traits_;
  const Stack arguments_;
  const c10::Device device_;
  Stack& results_;
  c10::GeneratorImpl* generator_ = nullptr;
};

void RunBoxed(const c10::OperatorHandle& op, Stack* stack) { RunOnDevice(op, stack); }

bool ReturnsView(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

[[maybe_unused]] const bool operators_registered = [] {
  static auto* const aten =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  static auto* const all =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  const std::set<std::string> own = RegisterOwnKernels(*aten);
  // Operations with their own CPU kernel are not decomposed, so that values equal the CPU's to the
  // last bit.
  const auto& dispatcher = c10::Dispatcher::singleton();
  auto names = dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CPU);
  names.push_back({"aten::convolution", ""});
  names.push_back({"aten::convolution_backward", ""});
  for (const c10::OperatorName& name : names) {
    const std::string text = c10::toString(name);
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!text.starts_with("aten::") || own.contains(text) || !op) continue;
    if (ReturnsView(op->schema())) continue;
    aten->impl(text.substr(sizeof "aten::" - 1).c_str(),
               torch::CppFunction::makeFromBoxedFunction<&RunBoxed>());
  }
  all->fallback(torch::CppFunction::makeFromBoxedFunction<&RunBoxed>());
  return true;
}();

}  // namespace

void RunOnDevice(const c10::OperatorHandle& op, Stack* stack) { Call(op, stack).Run(); }

}  // namespace dslaunch::standin
