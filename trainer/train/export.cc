#include "trainer/train/export.h"

#include <ATen/ATen.h>

#include <map>

#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/whole_tensor.h"
#include "trainer/weights/adapter_files.h"
#include "trainer/weights/pretrained.h"

namespace dslaunch {
namespace {

// This rank's parts of tensors, keyed by the name of the tensor.
using Parts = std::multimap<std::string, TensorPart>;

// Returns whether this rank supplies the values of `part`. Exactly one rank supplies each value.
bool Gives(const TensorPart& part, const TrainingModel& training_model) {
  return part.is_canonical && (!part.replicated || training_model.replicas().rank() == 0);
}

// Returns the whole tensor on every rank. Each rank adds its parts to zeros, and an all-reduce sums
// them up.
at::Tensor Whole(const ExportedTensor& tensor, const Parts& parts,
                 const TrainingModel& training_model, const ProcessGroup& group) {
  const auto [begin, end] = parts.equal_range(tensor.name);
  const bool everywhere = !training_model.core().ranks().mesh().cuts_model();
  if (everywhere && begin != end && begin->second.replicated) {
    return begin->second.tensor.detach().cpu();
  }
  at::Tensor whole = at::zeros(tensor.shape, tensor.dtype);
  for (auto item = begin; item != end; ++item) {
    const TensorPart& part = item->second;
    if (!Gives(part, training_model)) continue;
    PutPart(part.tensor, part.shard, whole.view(-1));
  }
  group.AllReduce(whole);
  return whole;
}

}  // namespace

void ExportWeights(const TrainingModel& training_model, const Model& whole_model,
                   const ProcessGroup& group, const Recipe& recipe, const std::string& folder) {
  const at::NoGradGuard no_grad;
  Parts parts;
  for (TensorPart& part : training_model.core().ModelState()) {
    const std::string name = part.name;
    parts.emplace(name, std::move(part));
  }
  std::vector<NamedTensor> names = Unique(whole_model.named_parameters());
  for (NamedTensor& item : Unique(whole_model.named_buffers())) names.push_back(std::move(item));
  if (recipe.lora) {
    std::erase_if(names, [](const NamedTensor& item) { return !IsAdapterTensor(item.name); });
  }
  // A rank that holds no part of a tensor contributes -1, so the maximum over the ranks is the
  // dtype of the ranks that hold the tensor. The dtype in `whole_model` is not used, because master
  // weights have another dtype than the model's parameters.
  at::Tensor dtypes = at::full({static_cast<int64_t>(names.size())}, -1, at::kLong);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto part = parts.find(names[i].name);
    if (part == parts.end()) continue;
    dtypes[static_cast<int64_t>(i)] = static_cast<int64_t>(part->second.tensor.scalar_type());
  }
  group.AllReduce(dtypes, ReduceOp::kMax);
  std::vector<ExportedTensor> tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto dtype = static_cast<at::ScalarType>(dtypes[static_cast<int64_t>(i)].item<int64_t>());
    tensors.push_back({names[i].name, dtype, names[i].tensor.sizes().vec()});
  }
  const auto whole = [&](size_t i) { return Whole(tensors[i], parts, training_model, group); };
  if (recipe.lora) {
    std::vector<NamedTensor> adapters;
    for (size_t i = 0; i < tensors.size(); ++i) adapters.push_back({tensors[i].name, whole(i)});
    if (group.rank() == 0) {
      WriteAdapters(adapters, *recipe.lora, recipe.model, recipe.run.init_weights, folder);
    }
  } else if (group.rank() == 0) {
    ExportHuggingFace(tensors, whole, recipe.model, folder);
  } else {
    for (size_t i = 0; i < tensors.size(); ++i) whole(i);
  }
}

}  // namespace dslaunch
