#include "tests/support/cuda/recorded_graph.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <vector>

namespace dslaunch {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

std::vector<at::Tensor> TensorsIn(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? std::vector{value.toTensor()} : std::vector<at::Tensor>();
  }
  if (value.isTensorList()) return value.toTensorVector();
  return {};
}

const void* MemoryOf(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

class Recording {
 public:
  void Run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const std::string& name = op.schema().name();
    TORCH_CHECK(name != "aten::_local_scalar_dense" && name != "aten::item",
                "operation not permitted when stream is capturing");
    const size_t arguments = op.schema().arguments().size();
    Call call{op, {stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end()}, {}};
    for (const c10::IValue& value : call.arguments) {
      for (const at::Tensor& tensor : TensorsIn(value)) Keep(tensor);
    }
    op.callBoxed(stack);
    const size_t returns = op.schema().returns().size();
    call.results.assign(stack->end() - static_cast<std::ptrdiff_t>(returns), stack->end());
    for (const c10::IValue& value : call.results) {
      for (const at::Tensor& tensor : TensorsIn(value)) made_.emplace(MemoryOf(tensor), tensor);
    }
    calls_.push_back(std::move(call));
  }

  // Undoes the step, because recording must not execute it: restores memory that existed before the
  // step, and fills tensors made by the step with invalid values.
  void Undo() {
    for (auto& [memory, kept] : before_) {
      if (kept.bytes.empty()) continue;
      std::memcpy(kept.tensor.storage().mutable_data(), kept.bytes.data(), kept.bytes.size());
    }
    for (auto& [memory, tensor] : made_) {
      if (before_.contains(memory) || tensor.storage().nbytes() == 0) continue;
      std::memset(tensor.storage().mutable_data(), 0xff, tensor.storage().nbytes());
    }
  }

  void Replay() const {
    const at::NoGradGuard no_grad;
    for (const Call& call : calls_) {
      torch::jit::Stack stack = call.arguments;
      call.op.callBoxed(&stack);
      for (size_t i = 0; i < call.results.size(); ++i) {
        const std::vector<at::Tensor> now = TensorsIn(stack.at(i)),
                                      then = TensorsIn(call.results[i]);
        for (size_t k = 0; k < then.size(); ++k) {
          if (MemoryOf(now[k]) != MemoryOf(then[k])) at::Tensor(then[k]).detach().copy_(now[k]);
        }
      }
    }
  }

 private:
  struct Call {
    c10::OperatorHandle op;
    torch::jit::Stack arguments, results;
  };
  struct Kept {
    at::Tensor tensor;
    std::vector<char> bytes;
  };

  void Keep(const at::Tensor& tensor) {
    const void* memory = MemoryOf(tensor);
    if (made_.contains(memory) || before_.contains(memory)) return;
    const auto* data = static_cast<const char*>(tensor.storage().data());
    before_.emplace(memory, Kept{tensor, {data, data + tensor.storage().nbytes()}});
  }

  std::vector<Call> calls_;
  std::map<const void*, Kept> before_;
  std::map<const void*, at::Tensor> made_;
};

thread_local Recording* recording = nullptr;

void Record(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  // A composite operation is recorded as its parts, each of which arrives here in its own call.
  constexpr auto kComposite = c10::DispatchKey::CompositeImplicitAutograd;
  if (op.hasKernelForDispatchKey(kComposite) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    op.callBoxedForDispatchKey(kComposite, *stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  recording->Run(op, stack);
}

}  // namespace

class RecordedGraph : public StepGraph {
 public:
  explicit RecordedGraph(RecordingAccelerator& owner) : owner_(owner) {}

  void Capture(const std::function<void()>& work) override {
    ++owner_.recorded_;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor drawn = generator.get_state();
    recording = &recording_;
    try {
      const c10::impl::IncludeDispatchKeyGuard here(kKey);
      work();
    } catch (...) {
      recording = nullptr;
      throw;
    }
    recording = nullptr;
    generator.set_state(drawn);  // so that recording uses up no random numbers
    recording_.Undo();
  }
  void Replay() override {
    ++owner_.replayed_;
    recording_.Replay();
  }

 private:
  RecordingAccelerator& owner_;
  Recording recording_;
};

std::unique_ptr<StepGraph> RecordingAccelerator::MakeStepGraph() {
  return std::make_unique<RecordedGraph>(*this);
}

}  // namespace dslaunch

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&dslaunch::Record>());
}
