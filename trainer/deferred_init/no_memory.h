// Implements tensors whose storages have no allocated memory, and operations on such tensors. They
// are used to record a constructor and to count the memory of a pass (shape_pass.h).
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

// The dispatch key of tensors without allocated memory, which LibTorch reserves for them and does
// not use itself. Its kernels run after autograd and the decomposition of composite operations, and
// before all kernels that access values.
inline constexpr c10::DispatchKey kNoMemoryKey = c10::DispatchKey::Fake;

inline constexpr char kNoAddress[] = "data_ptr() of a tensor that has no memory yet";

// Returns whether values of this type are tensors or lists of tensors.
bool IsTensors(const c10::Type& type);

// Returns `value` with every tensor in it replaced by the result of change(tensor).
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

// Returns `copy`, marked as a wrapped number if `tensor` is a wrapped number. Numbers in an
// operation such as 2 * x are wrapped as tensors that do not determine the dtype of the result.
at::Tensor CopyKind(const at::Tensor& tensor, at::Tensor copy);

// Returns the number of bytes from the start of the tensor's first element to the end of its last
// element.
size_t BytesOf(const at::Tensor& tensor);

// Returns whether the results of `op` are views of its arguments.
bool IsView(const c10::OperatorHandle& op);

// Runs a composite `op` as calls of its parts, which are dispatched one by one. Returns false,
// without running `op`, if it is not composite.
bool Decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack);

class NoResults : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

// Returns tensors with the layout of the results of `op`. They are from LibTorch's meta device or,
// if `op` has no kernel there, from a run on zeros in memory, whose arguments may have at most
// `most_bytes` together. Does not change the default generator. Throws NoResults with the reason if
// the results depend on values or the operation fails for zeros, and c10::Error if the arguments
// are not valid for the operation. Precondition: called from an OpHandler.
std::vector<c10::IValue> InferResults(const c10::OperatorHandle& op,
                                      const std::vector<c10::IValue>& arguments, size_t most_bytes);

// Returns an ordinary CPU tensor with the shape, strides and dtype of `like`, but without a data
// pointer. `context` has no data; its deleter runs when the last reference to the tensor's storage
// is dropped. Throws NoResults unless `like` is an ordinary tensor with memory of its own.
at::Tensor TensorWithoutMemory(const at::Tensor& like,
                               c10::DataPtr context = {nullptr, c10::Device(c10::kCPU)});

// Receives every operation of a thread after autograd has run and composite operations have been
// decomposed.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  // Handles `op`. `keys` are the dispatch keys of the call. Removes the arguments from `stack` and
  // leaves the results there.
  virtual void Handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) = 0;

  static bool AnyInThisThread();
};

// Makes `handler` receive this thread's operations while this object exists. At most one object may
// exist per thread.
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
