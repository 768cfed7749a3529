#include "trainer/deferred_init/no_memory.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace dslaunch {
namespace {

thread_local OpHandler* handler_of_thread = nullptr;

void HandleOp(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  handler_of_thread->Handle(op, keys, stack);
}

TORCH_LIBRARY_IMPL(_, Fake, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&HandleOp>());
}

}  // namespace

bool IsTensors(const c10::Type& type) {
  return type.kind() == c10::TypeKind::TensorType ||
         (type.kind() == c10::TypeKind::ListType &&
          type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType);
}

at::Tensor CopyKind(const at::Tensor& tensor, at::Tensor copy) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

size_t BytesOf(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                          tensor.dtype().itemsize());
}

bool IsView(const c10::OperatorHandle& op) {
  const std::vector<c10::Argument>& returns = op.schema().returns();
  return op.hasTag(at::Tag::inplace_view) ||
         std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
           return result.alias_info() != nullptr && !result.alias_info()->isWrite();
         });
}

bool Decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr auto kComposite = c10::DispatchKey::CompositeImplicitAutograd;
  if (!op.hasKernelForDispatchKey(kComposite) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    return false;
  }
  op.callBoxedForDispatchKey(kComposite, *stack);
  return true;
}

std::vector<c10::IValue> InferResults(const c10::OperatorHandle& op,
                                      const std::vector<c10::IValue>& arguments,
                                      size_t most_bytes) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kNoMemoryKey);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto on = [&](c10::DeviceType device) {
    torch::jit::Stack stack;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (op.schema().arguments()[i].name() == "device") {
        stack.emplace_back(c10::Device(device));
        continue;
      }
      stack.push_back(WithTensors(arguments[i], [&](const at::Tensor& tensor) {
        const auto elements = static_cast<int64_t>(BytesOf(tensor) / tensor.dtype().itemsize());
        return CopyKind(tensor, at::zeros({elements}, tensor.options().device(device))
                                    .as_strided(tensor.sizes(), tensor.strides()));
      }));
    }
    op.callBoxed(stack);
    return stack;
  };
  try {
    return on(c10::kMeta);
  } catch (const c10::NotImplementedError&) {
    if (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) {
      throw NoResults("");
    }
  }
  size_t bytes = 0;
  for (const c10::IValue& argument : arguments) {
    ForTensors(argument, [&](const at::Tensor& tensor) { bytes += BytesOf(tensor); });
  }
  if (bytes > most_bytes) throw NoResults(" (it would need " + std::to_string(bytes) + " bytes)");
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const auto state = [&] {
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  };
  const at::Tensor before = state();
  const auto restore = [&] {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before);
  };
  try {
    std::vector<c10::IValue> results = on(c10::kCPU);
    restore();
    return results;
  } catch (const c10::Error& error) {
    restore();
    throw NoResults(std::string(" (") + error.what_without_backtrace() + ")");
  }
}

at::Tensor TensorWithoutMemory(const at::Tensor& like, c10::DataPtr context) {
  if (like.layout() != at::kStrided || like.storage_offset() != 0 ||
      like.storage().use_count() != 1) {
    throw NoResults("whose result is not an ordinary tensor with its own memory");
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(BytesOf(like)),
                       c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  // Code that accesses the data pointer would get null and crash, so such an access is made an
  // error.
  impl.release_data_and_set_meta_custom_data_ptr_error_msg_(kNoAddress);
  impl.set_data_ptr_noswap(std::move(context));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  return tensor;
}

bool OpHandler::AnyInThisThread() { return handler_of_thread != nullptr; }

HandlerScope::HandlerScope(OpHandler& handler) : key_(kNoMemoryKey) {
  handler_of_thread = &handler;
}

HandlerScope::~HandlerScope() { handler_of_thread = nullptr; }

}  // namespace dslaunch
