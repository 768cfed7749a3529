#include "trainer/data/plugin_data.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "dslaunch/plugin.h"
#include "trainer/base/no_target.h"
#include "trainer/config/json/json_object.h"
#include "trainer/plugin/plugin_library.h"

namespace dslaunch {
namespace {

std::string ShapeText(const at::Tensor& tensor) {
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (int64_t i = 0; i < tensor.dim(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  return text + "]";
}

// The dtype and shape of a sample's inputs or targets.
struct SampleForm {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;

  static SampleForm Of(const at::Tensor& batch) {
    return {batch.scalar_type(), batch.sizes().slice(1).vec()};
  }
  bool operator==(const SampleForm&) const = default;
};

// Returns whether each number of an int64 tensor is in 0 .. end - 1, or is kNoTarget if
// `may_be_none`. LibTorch's operators would start threads in the thread that reads ahead, so this
// is a plain loop.
bool AreBelow(const at::Tensor& numbers, int64_t end, bool may_be_none) {
  const at::Tensor plain = numbers.contiguous();
  const int64_t* number = plain.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < plain.numel(); ++i) {
    const bool fits =
        (number[i] >= 0 && number[i] < end) || (may_be_none && number[i] == kNoTarget);
    if (!fits) return false;
  }
  return true;
}

class PluginDataset : public Dataset {
 public:
  // Reads and checks the first sample. Precondition: `dataset` is not null.
  PluginDataset(PluginPart part, std::shared_ptr<Dataset> dataset, const DataNeeds& needs)
      : part_(std::move(part)), needs_(needs), dataset_(std::move(dataset)) {
    Call("cannot say its size", [&] { size_ = dataset_->size(); });
    if (size_ < 0) FailPlugin(part_, "has the size " + std::to_string(size_));
    if (size_ == 0) return;
    Call("cannot say how many tokens a sample has",
         [&] { tokens_per_sample_ = dataset_->tokens_per_sample(); });
    if (tokens_per_sample_ < 0)
      FailPlugin(part_, "has " + std::to_string(tokens_per_sample_) + " tokens in a sample");
    const int64_t index = 0;
    const Batch first = Read({&index, 1});
    inputs_ = SampleForm::Of(first.inputs);
    targets_ = SampleForm::Of(first.targets);
    CheckFormFor(first);
    CheckNumbers(first);
    if (needs_.vocabulary > 0) tokens_per_sample_ = inputs_.shape[0];
  }

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return inputs_.shape; }
  int64_t tokens_per_sample() const override { return tokens_per_sample_; }

  Batch Fetch(std::span<const int64_t> indices) const override {
    Batch batch = Read(indices);
    if (SampleForm::Of(batch.inputs) != inputs_ || SampleForm::Of(batch.targets) != targets_) {
      FailPlugin(part_, "gives samples that differ: inputs " + ShapeText(batch.inputs) +
                            " and targets " + ShapeText(batch.targets) + ", at first inputs " +
                            FormText(inputs_) + " and targets " + FormText(targets_));
    }
    CheckNumbers(batch);
    return batch;
  }

 private:
  static std::string FormText(const SampleForm& form) {
    std::string text = std::string(c10::toString(form.type)) + " [samples";
    for (const int64_t size : form.shape) text += ", " + std::to_string(size);
    return text + "]";
  }

  void Call(const std::string& doing, const std::function<void()>& call) const {
    CallPlugin(part_, doing, call);
  }

  // Reads the samples `indices`. Throws unless the batch has as many samples as there are indices.
  Batch Read(std::span<const int64_t> indices) const {
    Batch batch;
    Call("cannot read samples", [&] { batch = dataset_->Fetch(indices); });
    const auto count = static_cast<int64_t>(indices.size());
    for (const auto& [name, tensor] :
         {std::pair("inputs", &batch.inputs), std::pair("targets", &batch.targets)}) {
      if (!tensor->defined()) FailPlugin(part_, std::string("gives no ") + name);
      if (!tensor->device().is_cpu())
        FailPlugin(part_, std::string("gives ") + name + " that are not on the CPU");
      if (tensor->dim() == 0 || tensor->size(0) != count) {
        FailPlugin(part_, std::string("gives ") + name + " " + ShapeText(*tensor) + " for " +
                              std::to_string(count) + (count == 1 ? " sample" : " samples"));
      }
      if (tensor->requires_grad()) *tensor = tensor->detach();
    }
    return batch;
  }

  void CheckFormFor(const Batch& batch) const {
    const std::string given =
        "gives inputs " + ShapeText(batch.inputs) + " and targets " + ShapeText(batch.targets);
    if (needs_.classes > 0 &&
        (inputs_.type != at::kFloat || targets_.type != at::kLong || !targets_.shape.empty()))
      FailPlugin(part_, given + "; the model takes inputs of float and targets Long [samples]");
    if (needs_.vocabulary == 0) return;
    if (inputs_.type != at::kLong || targets_.type != at::kLong || inputs_.shape.size() != 1 ||
        targets_.shape != inputs_.shape)
      FailPlugin(part_, given + "; the model takes both as Long [samples, tokens]");
    if (inputs_.shape[0] > needs_.positions) {
      FailPlugin(part_, "has " + std::to_string(inputs_.shape[0]) +
                            " tokens in a sample, but the model takes at most " +
                            std::to_string(needs_.positions));
    }
  }

  void CheckNumbers(const Batch& batch) const {
    if (needs_.classes > 0 && !AreBelow(batch.targets, needs_.classes, /*may_be_none=*/true)) {
      FailPlugin(part_, "gives a label that is not below model.num_classes, " +
                            std::to_string(needs_.classes));
    }
    if (needs_.vocabulary > 0 &&
        (!AreBelow(batch.inputs, needs_.vocabulary, /*may_be_none=*/false) ||
         !AreBelow(batch.targets, needs_.vocabulary, /*may_be_none=*/true))) {
      FailPlugin(part_, "gives a token that is not below model.vocab_size, " +
                            std::to_string(needs_.vocabulary));
    }
  }

  const PluginPart part_;
  const DataNeeds needs_;
  const std::shared_ptr<Dataset> dataset_;
  int64_t size_ = 0;
  int64_t tokens_per_sample_ = 0;
  SampleForm inputs_, targets_;
};

}  // namespace

DataSplits OpenPluginData(const DataConfig& data, const DataNeeds& needs) {
  const PluginPart part = {data.plugin, "data.plugin", "dataset", data.name};
  const auto& symbol = *static_cast<const DatasetSymbol*>(FindPluginPart(part));
  const auto open = [&](bool train) -> std::unique_ptr<Dataset> {
    const DatasetInput input{train, data.path, data.params, NumbersOf(data.params, "data.params")};
    std::shared_ptr<Dataset> made;
    CallPlugin(part, std::string("cannot be made for ") + (train ? "training" : "evaluation"),
               [&] { made = symbol.make(input); });
    if (made == nullptr) return nullptr;
    return std::make_unique<PluginDataset>(part, std::move(made), needs);
  };
  DataSplits splits{open(/*train=*/true), open(/*train=*/false)};
  if (splits.train == nullptr || splits.train->size() == 0)
    FailPlugin(part, "has no training samples");
  if (splits.test != nullptr && splits.test->size() == 0) splits.test.reset();
  return splits;
}

}  // namespace dslaunch
