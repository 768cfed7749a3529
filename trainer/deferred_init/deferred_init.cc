#include "dslaunch/deferred_init.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/deferred_init/no_memory.h"
#include "trainer/deferred_init/replay_plan.h"

namespace dslaunch {
namespace {

constexpr char kOnDeferred[] = "on a tensor that has no memory yet";
constexpr char kEngineMoves[] = "; the engine moves the model to its device";

struct StorageHash {
  size_t operator()(const c10::Storage& storage) const {
    return std::hash<const c10::StorageImpl*>()(storage.unsafeGetStorageImpl());
  }
};
struct SameStorage {
  bool operator()(const c10::Storage& a, const c10::Storage& b) const {
    return a.unsafeGetStorageImpl() == b.unsafeGetStorageImpl();
  }
};

[[noreturn]] void Refuse(const std::string& what) {
  throw TrainError(ExitCode::kBadInput, "the model's constructor " + what +
                                            "; change that, or build the model in memory");
}

std::string NameOf(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::_local_scalar_dense" ? "item()" : name;
}

[[noreturn]] void RefuseOp(const c10::OperatorHandle& op, const std::string& why) {
  Refuse("runs " + NameOf(op) + " " + why);
}

// Returns a tensor with the same elements of the same storage. Later changes of the metadata of
// `tensor` do not affect the result.
at::Tensor Alias(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

// Returns a tensor with the elements of `storage`, and the shape, strides and offset of `tensor`.
at::Tensor In(const c10::Storage& storage, const at::Tensor& tensor) {
  at::Tensor moved = Alias(tensor);
  moved.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  return moved;
}

// Returns whether `op` overwrites every element of its first argument.
bool Overwrites(const c10::OperatorHandle& op) {
  static const std::set<std::string> kNames = {
      "aten::zero_",       "aten::fill_",   "aten::copy_",        "aten::normal_",
      "aten::uniform_",    "aten::random_", "aten::exponential_", "aten::bernoulli_",
      "aten::log_normal_", "aten::cauchy_", "aten::geometric_"};
  return kNames.contains(op.schema().name());
}

bool IsWholeStorage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().nbytes();
}

bool SameLayout(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.dtype() == b.dtype() &&
         a.storage_offset() == b.storage_offset();
}

class Recorder : public OpHandler {
 public:
  explicit Recorder(uint64_t seed) : seed_(seed) {
    // Sets a state of the generator that no seed produces, so that a constructor that sets a seed
    // is detected.
    at::manual_seed(seed);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    at::check_generator<at::CPUGeneratorImpl>(generator)->random();
    untouched_ = generator.get_state();
  }

  // Checks that the constructor has not used the generator, and seeds it. Call this after the last
  // operation.
  void Finish() {
    CheckGenerator();
    Seed();
  }

  bool deferred(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.has_storage() && current_.contains(tensor.storage());
  }

  // Records or runs `op`. The dispatcher calls this function instead of `op`.
  void Handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;

  void Replay(const std::vector<at::Tensor>& wanted,
              const std::function<void(size_t index, const at::Tensor& values)>& take);

 private:
  struct Op {
    c10::OperatorHandle op;
    // Arguments with tensors that the constructor cannot change.
    std::vector<c10::IValue> arguments;
    // The storages without allocated memory that the operation uses, each with the index of its
    // value.
    std::vector<std::pair<c10::Storage, size_t>> touched;
    // Tensors that the operation creates. Their storages have no allocated memory.
    std::vector<at::Tensor> results;
  };

  void Record(const c10::OperatorHandle& op, torch::jit::Stack* stack, bool draws);
  // Returns the results of `op`, with the shapes of `shapes`. `written` contains the arguments that
  // `op` returns, in order.
  std::vector<c10::IValue> MakeResults(const c10::OperatorHandle& op,
                                       const std::vector<c10::IValue>& shapes,
                                       const std::vector<c10::IValue>& written, Op& recorded,
                                       DeferredStep& step);
  std::vector<c10::IValue> ResultShapes(const c10::OperatorHandle& op,
                                        const std::vector<c10::IValue>& arguments) const;
  at::Tensor WithoutMemory(const c10::OperatorHandle& op, const at::Tensor& shape);
  at::Tensor Kept(const c10::OperatorHandle& op, const at::Tensor& tensor) const;
  void Run(const Op& op, std::unordered_map<size_t, c10::Storage>& memory) const;
  void CheckGenerator() const;
  void Seed() const;

  uint64_t seed_;
  at::Tensor untouched_;  // state of the generator while operations are recorded
  std::vector<Op> ops_;
  std::vector<DeferredStep> steps_;  // values that each operation of ops_ uses
  size_t values_ = 0;
  // The index of the current value of each storage that has no allocated memory.
  std::unordered_map<c10::Storage, size_t, StorageHash, SameStorage> current_;
};

void Recorder::Handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) {
  if (Decompose(op, stack)) return;  // the parts of `op` were dispatched to this function

  const c10::FunctionSchema& schema = op.schema();
  bool tensors = false, any_deferred = false, writes_real = false;
  bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const c10::IValue& value = torch::jit::peek(*stack, i, schema.arguments().size());
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    ForTensors(value, [&](const at::Tensor& tensor) {
      tensors = true;
      any_deferred = any_deferred || deferred(tensor);
      writes_real = writes_real || (written && !deferred(tensor));
    });
    if (value.isGenerator() && value.toGenerator().defined() &&
        value.toGenerator() != at::detail::getDefaultCPUGenerator()) {
      RefuseOp(op, "with its own random generator, whose numbers cannot be drawn again");
    }
  }
  const bool view = IsView(op);
  // Views need no memory, and every recorded argument includes its tensor's layout, so views are
  // run at once.
  if (view || (tensors && !any_deferred && !draws)) {
    const c10::impl::ExcludeDispatchKeyGuard below(kNoMemoryKey);
    try {
      op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kNoMemoryKey),
                         stack);
    } catch (const c10::Error& error) {
      if (!any_deferred || !op.hasTag(at::Tag::inplace_view)) throw;
      RefuseOp(op, std::string(kOnDeferred) + " (" + error.what_without_backtrace() + ")");
    }
    return;
  }
  if (writes_real) {
    RefuseOp(op,
             "to change a tensor from outside the constructor with values that do not exist yet");
  }
  for (const c10::Argument& result : schema.returns()) {
    if (!IsTensors(*result.type())) {
      RefuseOp(op, kOnDeferred);
    }
  }
  if (draws) CheckGenerator();
  Record(op, stack, draws);
}

std::vector<c10::IValue> Recorder::MakeResults(const c10::OperatorHandle& op,
                                               const std::vector<c10::IValue>& shapes,
                                               const std::vector<c10::IValue>& written,
                                               Op& recorded, DeferredStep& step) {
  const c10::FunctionSchema& schema = op.schema();
  std::vector<c10::IValue> results;
  size_t next_written = 0;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    if (schema.returns()[i].alias_info() != nullptr) {
      results.push_back(written.at(next_written++));
      continue;
    }
    results.push_back(WithTensors(shapes[i], [&](const at::Tensor& shape) {
      const at::Tensor result = WithoutMemory(op, shape);
      const size_t value = current_.at(result.storage());
      recorded.touched.emplace_back(result.storage(), value);
      step.writes.push_back(value);
      recorded.results.push_back(Alias(result));
      return result;
    }));
  }
  return results;
}

void Recorder::Record(const c10::OperatorHandle& op, torch::jit::Stack* stack, bool draws) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<c10::IValue> arguments = torch::jit::pop(*stack, schema.arguments().size());

  const bool has_new =
      std::any_of(schema.returns().begin(), schema.returns().end(),
                  [](const c10::Argument& result) { return result.alias_info() == nullptr; });
  const std::vector<c10::IValue> shapes =
      has_new ? ResultShapes(op, arguments) : std::vector<c10::IValue>(schema.returns().size());

  Op recorded{op, {}, {}, {}};
  DeferredStep step;
  step.draws = draws;
  std::vector<c10::IValue> written;  // arguments that the operation writes and returns
  std::vector<c10::Storage> read, changed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    if (writes) written.push_back(arguments[i]);
    ForTensors(arguments[i], [&](const at::Tensor& tensor) {
      if (deferred(tensor)) (writes ? changed : read).push_back(tensor.storage());
    });
    recorded.arguments.push_back(
        WithTensors(arguments[i], [&](const at::Tensor& tensor) { return Kept(op, tensor); }));
  }
  const auto is_read = [&](const c10::Storage& storage) {
    return std::any_of(read.begin(), read.end(),
                       [&](const c10::Storage& other) { return SameStorage()(storage, other); });
  };
  if (Overwrites(op) && IsWholeStorage(arguments[0].toTensor()) && !is_read(changed.at(0))) {
    current_.at(changed[0]) = values_++;
  } else {
    for (const c10::Storage& storage : changed) step.reads.push_back(current_.at(storage));
  }
  for (const c10::Storage& storage : read) step.reads.push_back(current_.at(storage));
  for (const c10::Storage& storage : changed) step.writes.push_back(current_.at(storage));
  for (const auto* storages : {&read, &changed}) {
    for (const c10::Storage& storage : *storages)
      recorded.touched.emplace_back(storage, current_.at(storage));
  }

  std::vector<c10::IValue> results = MakeResults(op, shapes, written, recorded, step);
  ops_.push_back(std::move(recorded));
  steps_.push_back(std::move(step));
  for (c10::IValue& result : results) torch::jit::push(*stack, std::move(result));
}

std::vector<c10::IValue> Recorder::ResultShapes(const c10::OperatorHandle& op,
                                                const std::vector<c10::IValue>& arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (op.schema().arguments()[i].name() == "device" && arguments[i].isDevice() &&
        !arguments[i].toDevice().is_cpu()) {
      RefuseOp(op, "for the device " + arguments[i].toDevice().str() + kEngineMoves);
    }
  }
  try {
    return InferResults(op, arguments, std::numeric_limits<size_t>::max());
  } catch (const NoResults& error) {
    RefuseOp(op, kOnDeferred + std::string(error.what()));
  }
}

at::Tensor Recorder::WithoutMemory(const c10::OperatorHandle& op, const at::Tensor& shape) {
  at::Tensor tensor;
  try {
    tensor = TensorWithoutMemory(shape);
  } catch (const NoResults& error) {
    RefuseOp(op, error.what());
  }
  current_.emplace(tensor.storage(), values_++);
  return tensor;
}

// Returns the tensor to pass to a later call of `op`. The constructor may own the memory of a real
// tensor and change it before that call, so real tensors are copied.
at::Tensor Recorder::Kept(const c10::OperatorHandle& op, const at::Tensor& tensor) const {
  if (deferred(tensor)) return Alias(tensor);
  if (!tensor.is_cpu()) {
    RefuseOp(op, "with a tensor on the device " + tensor.device().str() + kEngineMoves);
  }
  const c10::impl::ExcludeDispatchKeyGuard not_here(kNoMemoryKey);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  return CopyKind(tensor, tensor.clone());
}

void Recorder::CheckGenerator() const {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const c10::impl::ExcludeDispatchKeyGuard not_here(kNoMemoryKey);
  if (!at::equal(generator.get_state(), untouched_)) {
    Refuse("seeds the random generator, or draws from it without a tensor operation");
  }
}

void Recorder::Seed() const {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed_);
}

// Runs a recorded operation. `memory` contains the storages of the values computed so far, keyed by
// index.
void Recorder::Run(const Op& op, std::unordered_map<size_t, c10::Storage>& memory) const {
  const auto value_of = [&](const at::Tensor& tensor) {
    return std::find_if(
               op.touched.begin(), op.touched.end(),
               [&](const auto& touched) { return SameStorage()(touched.first, tensor.storage()); })
        ->second;
  };
  torch::jit::Stack stack;
  // Real tensors, and the recorded tensors with the same layouts.
  std::vector<at::Tensor> tensors, foreseen;
  for (const c10::IValue& argument : op.arguments) {
    stack.push_back(WithTensors(argument, [&](const at::Tensor& tensor) {
      if (!deferred(tensor)) return tensor;
      c10::Storage& storage = memory[value_of(tensor)];
      if (!storage) {
        const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
        storage = at::detail::empty_cpu({bytes}, at::kByte).storage();
      }
      foreseen.push_back(tensor);
      return tensors.emplace_back(In(storage, tensor));
    }));
  }
  try {
    op.op.callBoxed(stack);
  } catch (const c10::Error& error) {
    RefuseOp(op.op, std::string("which fails: ") + error.what_without_backtrace());
  }
  foreseen.insert(foreseen.end(), op.results.begin(), op.results.end());
  for (size_t i = 0; i < stack.size(); ++i) {
    if (op.op.schema().returns()[i].alias_info() != nullptr) continue;
    ForTensors(stack[i], [&](const at::Tensor& result) { tensors.push_back(result); });
  }
  if (!std::equal(tensors.begin(), tensors.end(), foreseen.begin(), foreseen.end(), SameLayout)) {
    RefuseOp(op.op, "whose result has another shape or dtype than was inferred");
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    memory[value_of(op.results[i])] = tensors[tensors.size() - op.results.size() + i].storage();
  }
}

void Recorder::Replay(const std::vector<at::Tensor>& wanted,
                      const std::function<void(size_t index, const at::Tensor& values)>& take) {
  std::vector<Op> ops = std::exchange(ops_, {});
  const std::vector<DeferredStep> steps = std::exchange(steps_, {});
  std::vector<size_t> wanted_values;
  std::unordered_multimap<size_t, size_t> wanted_by_value;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!deferred(wanted[i])) {
      take(i, wanted[i]);
      continue;
    }
    wanted_values.push_back(current_.at(wanted[i].storage()));
    wanted_by_value.emplace(wanted_values.back(), i);
  }
  const ReplayPlan plan = PlanReplay(steps, values_, wanted_values);
  for (const size_t value : wanted_values) {
    if (!plan.last_step[value]) {
      throw TrainError(ExitCode::kInternal, "internal error: an initialization is replayed twice");
    }
  }
  const at::NoGradGuard no_grad;
  Seed();
  std::unordered_map<size_t, c10::Storage> memory;
  for (size_t i = 0; i < ops.size(); ++i) {
    // Moved, so that the operation's copies of real tensors are freed after this iteration.
    const Op op = std::move(ops[i]);
    if (!plan.runs[i]) continue;
    Run(op, memory);
    for (const auto& [storage, value] : op.touched) {
      if (plan.last_step[value] != i || !memory.contains(value)) continue;
      const c10::Storage complete = std::move(memory.extract(value).mapped());
      const auto [begin, end] = wanted_by_value.equal_range(value);
      std::vector<size_t> indices;
      for (auto it = begin; it != end; ++it) indices.push_back(it->second);
      std::sort(indices.begin(), indices.end());
      for (const size_t index : indices) take(index, In(complete, wanted[index]));
    }
  }
}

}  // namespace

class InitRecording::Impl : public Recorder {
  using Recorder::Recorder;
};

InitRecording::InitRecording() = default;
InitRecording::~InitRecording() = default;
InitRecording::InitRecording(InitRecording&&) noexcept = default;
InitRecording& InitRecording::operator=(InitRecording&&) noexcept = default;

bool InitRecording::deferred(const at::Tensor& tensor) const {
  return impl_ != nullptr && impl_->deferred(tensor);
}

void InitRecording::Replay(
    const std::vector<at::Tensor>& wanted,
    const std::function<void(size_t index, const at::Tensor& values)>& take) {
  impl_->Replay(wanted, take);
}

InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct) {
  if (OpHandler::AnyInThisThread()) {
    throw TrainError(ExitCode::kInternal,
                     "internal error: two initializations are recorded at once");
  }
  InitRecording result;
  result.impl_ = std::make_unique<InitRecording::Impl>(seed);
  try {
    const HandlerScope scope(*result.impl_);
    construct();
  } catch (const c10::Error& error) {
    if (std::strstr(error.what_without_backtrace(), kNoAddress) == nullptr) throw;
    Refuse(std::string("uses ") + kNoAddress);
  }
  result.impl_->Finish();
  return result;
}

}  // namespace dslaunch
