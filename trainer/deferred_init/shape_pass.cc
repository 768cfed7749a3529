#include "trainer/deferred_init/shape_pass.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/deferred_init/no_memory.h"

namespace dslaunch {
namespace {

// Limits the bytes of the arguments of operations that have no shape function and run on zeros.
constexpr size_t kMostBytesOfZeros = size_t{1} << 30;

// The counted bytes of a pass. Tensors share ownership, because they may outlive the pass.
struct LiveBytes {
  int64_t live = 0;
  int64_t peak = 0;
};

struct LiveStorage {
  std::shared_ptr<LiveBytes> count;
  int64_t bytes = 0;
};

c10::DataPtr Counted(const std::shared_ptr<LiveBytes>& count, int64_t bytes) {
  count->live += bytes;
  count->peak = std::max(count->peak, count->live);
  const auto freed = [](void* context) {
    const auto* storage = static_cast<LiveStorage*>(context);
    storage->count->live -= storage->bytes;
    delete storage;
  };
  return {nullptr, new LiveStorage{count, bytes}, freed, c10::Device(c10::kCPU)};
}

// Returns a key of everything that determines the shapes of the results, provided that the results
// do not depend on values.
std::string KeyOf(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  std::string key = op.schema().name() + "." + op.schema().overload_name();
  for (const c10::IValue& argument : arguments) {
    bool tensors = false;
    ForTensors(argument, [&](const at::Tensor& tensor) {
      tensors = true;
      key += c10::str("|", tensor.sizes(), tensor.strides(), tensor.scalar_type());
    });
    if (!tensors) key += c10::str("|", argument);
  }
  return key;
}

// Returns a tensor [B, heads, T, width] on the meta device. Its elements are stored in the order
// [B, T, heads, width], as in tensors that attention allocates on the CPU.
at::Tensor ByPosition(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)},
                   like.options().device(c10::kMeta))
      .transpose(1, 2);
}

// Returns results on the meta device for operations that have no shape functions and would be slow
// on zeros; an empty list for other operations.
std::vector<at::Tensor> ShapesOf(const std::string& name,
                                 const std::vector<c10::IValue>& arguments) {
  const auto tensor = [&](size_t i) -> const at::Tensor& { return arguments.at(i).toTensor(); };
  if (name == "aten::embedding") {
    std::vector<int64_t> shape = tensor(1).sizes().vec();
    shape.push_back(tensor(0).size(-1));
    return {at::empty(shape, tensor(0).options().device(c10::kMeta))};
  }
  if (name == "aten::embedding_dense_backward") {
    const int64_t rows = arguments.at(2).toSymInt().guard_int(__FILE__, __LINE__);
    return {at::empty({rows, tensor(0).size(-1)}, tensor(0).options().device(c10::kMeta))};
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") {
    const at::Tensor& query = tensor(0);
    const at::TensorOptions sums =
        query.options().device(c10::kMeta).dtype(at::toOpMathType(query.scalar_type()));
    return {ByPosition(query),
            at::empty({query.size(0), query.size(2), query.size(1)}, sums).transpose(1, 2)};
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    return {ByPosition(tensor(1)), ByPosition(tensor(2)), ByPosition(tensor(3))};
  return {};
}

}  // namespace

class ShapePass::Impl : public OpHandler {
 public:
  // Disables oneDNN, whose matrix products have no shape functions, so that the same layers use
  // at::addmm.
  Impl() : onednn_(at::globalContext().userEnabledMkldnn()), scope_(*this) {
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~Impl() override { at::globalContext().setUserEnabledMkldnn(onednn_); }

  void Handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override {
    if (Decompose(op, stack)) return;
    const c10::FunctionSchema& schema = op.schema();
    if (IsView(op)) {
      const c10::impl::ExcludeDispatchKeyGuard below(kNoMemoryKey);
      op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kNoMemoryKey),
                         stack);
      return;
    }
    for (const c10::Argument& result : schema.returns()) {
      if (!IsTensors(*result.type())) Refuse(op, "");
    }
    const std::vector<c10::IValue> arguments = torch::jit::pop(*stack, schema.arguments().size());
    std::vector<c10::IValue> written;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) written.push_back(arguments[i]);
    }
    const bool has_new =
        std::any_of(schema.returns().begin(), schema.returns().end(),
                    [](const c10::Argument& result) { return result.alias_info() == nullptr; });
    const std::vector<c10::IValue> shapes =
        has_new ? Results(op, arguments) : std::vector<c10::IValue>(schema.returns().size());
    size_t next_written = 0;
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      if (schema.returns()[i].alias_info() != nullptr) {
        torch::jit::push(*stack, written.at(next_written++));
        continue;
      }
      torch::jit::push(*stack, WithTensors(shapes[i], [&](const at::Tensor& shape) {
        return WithoutMemory(op, shape);
      }));
    }
  }

  const std::shared_ptr<LiveBytes> count = std::make_shared<LiveBytes>();

 private:
  [[noreturn]] static void Refuse(const c10::OperatorHandle& op, const std::string& why) {
    throw TrainError(ExitCode::kBadInput, "the model runs " + op.schema().name() +
                                              ", whose result depends on values that are not "
                                              "computed here" +
                                              why);
  }

  at::Tensor WithoutMemory(const c10::OperatorHandle& op, const at::Tensor& like) {
    try {
      return TensorWithoutMemory(like, Counted(count, static_cast<int64_t>(BytesOf(like))));
    } catch (const NoResults& error) {
      Refuse(op, std::string(": ") + error.what());
    }
  }

  // Returns the results of `op` on the meta device. Each tensor has its own storage.
  std::vector<c10::IValue> Results(const c10::OperatorHandle& op,
                                   const std::vector<c10::IValue>& arguments) {
    const c10::impl::ExcludeDispatchKeyGuard not_here(kNoMemoryKey);
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    if (std::vector<at::Tensor> shapes = ShapesOf(op.schema().name(), arguments); !shapes.empty())
      return {shapes.begin(), shapes.end()};
    const std::string key = KeyOf(op, arguments);
    auto known = shapes_.find(key);
    if (known == shapes_.end()) {
      std::vector<c10::IValue> results;
      try {
        results = InferResults(op, arguments, kMostBytesOfZeros);
      } catch (const NoResults& error) {
        Refuse(op, error.what());
      }
      std::vector<c10::IValue> kept;
      for (const c10::IValue& result : results) kept.push_back(Shape(result));
      known = shapes_.emplace(key, std::move(kept)).first;
    }
    std::vector<c10::IValue> results;
    for (const c10::IValue& result : known->second) results.push_back(Shape(result));
    return results;
  }

  static c10::IValue Shape(const c10::IValue& value) {
    return WithTensors(value, [](const at::Tensor& tensor) {
      return at::empty_strided(tensor.sizes(), tensor.strides(),
                               tensor.options().device(c10::kMeta));
    });
  }

  const bool onednn_;
  // Results of operations, keyed by KeyOf().
  std::unordered_map<std::string, std::vector<c10::IValue>> shapes_;
  HandlerScope scope_;
};

ShapePass::ShapePass() : impl_(std::make_unique<Impl>()) {}
ShapePass::~ShapePass() = default;

int64_t ShapePass::live_bytes() const { return impl_->count->live; }
int64_t ShapePass::peak_bytes() const { return impl_->count->peak; }
void ShapePass::ResetPeak() { impl_->count->peak = impl_->count->live; }

}  // namespace dslaunch
