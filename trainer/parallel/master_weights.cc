#include "trainer/parallel/master_weights.h"

#include <ATen/ATen.h>

namespace dslaunch {

void CopyChanges(const at::Tensor& model, const at::Tensor& master) {
  const at::Tensor theirs = model.to(master.device());
  const at::Tensor changed = master.to(model.scalar_type()).ne(theirs);
  master.copy_(at::where(changed, theirs.to(master.scalar_type()), master));
}

MasterWeights::MasterWeights(const std::vector<NamedTensor>& parameters, bool enabled)
    : weights_(parameters) {
  if (!enabled) return;
  for (NamedTensor& weight : weights_) {
    const at::ScalarType type = weight.tensor.scalar_type();
    if (type != at::kHalf && type != at::kBFloat16) continue;
    model_.push_back(weight.tensor);
    weight.tensor = weight.tensor.detach().to(at::kFloat);
    masters_.push_back(weight.tensor);
  }
}

void MasterWeights::CopyToModel() const {
  if (masters_.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(model_, masters_);
}

void MasterWeights::CopyFromModel() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < masters_.size(); ++i) CopyChanges(model_[i], masters_[i]);
}

int64_t MasterWeights::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& master : masters_) bytes += static_cast<int64_t>(master.nbytes());
  return bytes;
}

}  // namespace dslaunch
