// Tensors without memory, and operations on them: what recording a constructor and counting a pass
// (shape_pass.h) have in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace dslaunch {

// LibTorch keeps this key for tensors without memory and has no use for it itself. It comes after
// autograd and the composite operations' taking apart, before everything that touches numbers.
inline constexpr c10::DispatchKey kNoMemoryKey = c10::DispatchKey::Fake;

inline constexpr char kNoAddress[] = "data_ptr() of a tensor that has no memory yet";

// Whether an argument or a result of this type is a tensor, or a list of them.
bool IsTensors(const c10::Type& type);

// `value` with every tensor in it replaced by what `change` makes of it.
template <class Change>
c10::IValue WithTensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(change(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    for (const at::Tensor& tensor : value.toTensorVector()) changed.push_back(change(tensor));
    return changed;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> changed;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      changed.push_back(tensor && tensor->defined() ? std::optional(change(*tensor)) : tensor);
    }
    return changed;
  }
  return value;
}

template <class Visit>
void ForTensors(const c10::IValue& value, const Visit& visit) {
  WithTensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

// Numbers that take part in an operation as Python's and C++'s do (2 * x) are tensors of a kind of
// their own, which do not decide the dtype of the result.
at::Tensor CopyKind(const at::Tensor& tensor, at::Tensor copy);

// From its first element to its last.
size_t BytesOf(const at::Tensor& tensor);

// Whether the results of `op` lie in its arguments' memory.
bool IsView(const c10::OperatorHandle& op);

// Of composite operations: calls `op` by what it is made of, which is then seen one by one. False:
// it is none.
bool TakeApart(const c10::OperatorHandle& op, torch::jit::Stack* stack);

class NoResults : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

// Tensors like the results of `op`: what it returns on LibTorch's device that computes shapes
// alone or, where it has no kernel for that device, for zeros in memory, of which arguments may
// take `most_bytes` together; the default generator is left as it was. Throws NoResults, which says
// why: the results depend on values, or the operation fails for zeros. c10::Error where the
// arguments do not fit the operation. To be called by an OpHandler.
std::vector<c10::IValue> InferResults(const c10::OperatorHandle& op,
                                      const std::vector<c10::IValue>& arguments, size_t most_bytes);

// An ordinary CPU tensor with the shape, strides and dtype of `like`, whose address cannot be
// taken. `context` has no data; its deleter is called when the last reference to the tensor's
// storage goes. Throws NoResults where `like` is not an ordinary tensor with memory of its own.
at::Tensor TensorWithoutMemory(const at::Tensor& like,
                               c10::DataPtr context = {nullptr, c10::Device(c10::kCPU)});

// Gets every operation of a thread that composite ones and autograd have come down to.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  // `keys` of the call. Takes the arguments from `stack`, and leaves the results there.
  virtual void Handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) = 0;

  static bool AnyInThisThread();
};

// While it lives, `handler` gets this thread's operations. One at a time in a thread.
class HandlerScope {
 public:
  explicit HandlerScope(OpHandler& handler);
  ~HandlerScope();
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard key_;
};

}  // namespace dslaunch
