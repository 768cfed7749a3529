#include "trainer/program/export.h"

#include <ATen/ATen.h>

#include <map>

#include "trainer/engine/module_tensors.h"
#include "trainer/models/pretrained.h"

namespace dslaunch {
namespace {

// The parts that this rank holds, by name.
using Parts = std::multimap<std::string, TensorPart>;

// Each rank adds its parts to nothing.
at::Tensor Whole(const ExportedTensor& tensor, const Parts& parts, const ProcessGroup& group) {
  const auto [begin, end] = parts.equal_range(tensor.name);
  if (begin != end && begin->second.replicated) return begin->second.tensor.detach();
  at::Tensor whole = at::zeros(tensor.shape, tensor.dtype);
  for (auto item = begin; item != end; ++item) {
    const TensorPart& part = item->second;
    whole.view(-1).narrow(0, part.start, part.tensor.numel()).copy_(part.tensor.view(-1));
  }
  group.AllReduce(whole);
  return whole;
}

}  // namespace

void ExportWeights(const Trainee& trainee, const ProcessGroup& group, const ModelConfig& config,
                   const std::string& folder) {
  const at::NoGradGuard no_grad;
  Parts parts;
  for (TensorPart& part : trainee.core().ModelState()) {
    const std::string name = part.name;
    parts.emplace(name, std::move(part));
  }
  const std::vector<NamedTensor> parameters = Unique(trainee.model().named_parameters());
  // Masters and what they stand for go by another dtype; of some a rank may hold neither.
  at::Tensor dtypes = at::full({static_cast<int64_t>(parameters.size())}, -1, at::kLong);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto part = parts.find(parameters[i].name);
    if (part == parts.end()) continue;
    dtypes[static_cast<int64_t>(i)] = static_cast<int64_t>(part->second.tensor.scalar_type());
  }
  group.AllReduce(dtypes, ReduceOp::kMax);
  std::vector<ExportedTensor> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto dtype = static_cast<at::ScalarType>(dtypes[static_cast<int64_t>(i)].item<int64_t>());
    tensors.push_back({parameters[i].name, dtype, parameters[i].tensor.sizes().vec()});
  }
  for (const NamedTensor& item : Unique(trainee.model().named_buffers())) {
    tensors.push_back({item.name, item.tensor.scalar_type(), item.tensor.sizes().vec()});
  }
  const auto whole = [&](size_t i) { return Whole(tensors[i], parts, group); };
  if (group.rank() == 0) {
    ExportHuggingFace(tensors, whole, config, folder);
  } else {
    for (size_t i = 0; i < tensors.size(); ++i) whole(i);
  }
}

}  // namespace dslaunch
