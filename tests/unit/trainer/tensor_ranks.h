// Helps tests whose ranks divide a model over their group.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/families/make_model.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/shards/shards.h"

namespace dslaunch {

// Calls f(elements of `whole`, elements of `part`) with views of the same sizes, for all elements
// that `shard` holds. Both tensors must be contiguous.
template <class F>
void ForEachBlock(const at::Tensor& whole, const at::Tensor& part, const Shard& shard, const F& f) {
  int64_t at = 0;
  for (const ShardBlock& block : BlocksOf(shard)) {
    const int64_t elements = block.rows * block.row;
    f(whole.view(-1).as_strided({block.rows, block.row}, {shard.pitch, 1}, block.at),
      part.view(-1).narrow(0, at, elements).view({block.rows, block.row}));
    at += elements;
  }
}

// Returns the part of a model that `tensor` describes; the group may be null. Models are made one
// at a time, because the ranks are threads that share the default generator.
inline std::shared_ptr<Model> MakePart(const ModelConfig& config, int64_t tokens,
                                       const TensorParallel& tensor, uint64_t seed) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::manual_seed(seed);
  return MakeModel(config, {tokens}, tensor);
}

// Copies the values of `whole`, a whole model, to `part`, one rank's part of the same model.
inline void CopyWeights(Model& part, const torch::nn::Module& whole) {
  const at::NoGradGuard no_grad;
  const auto cuts = CutsIn(part);
  const auto values = whole.named_parameters();
  for (auto& item : part.named_parameters()) {
    const at::Tensor& source = values[item.key()];
    const auto cut = cuts.find(item.key());
    if (cut == cuts.end()) {
      item.value().copy_(source);
      continue;
    }
    ForEachBlock(source, item.value(), cut->second.shard,
                 [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
  }
}

// Collects the gradients of a whole model from the parts of its ranks. Thread-safe.
class WholeGradients {
 public:
  // Adds the gradients of one rank's part; called once by each rank. Adds the names of gradients to
  // problems() that should equal another rank's but differ, and of padding whose gradient is not
  // zero.
  void Add(Model& part, int rank) {
    const std::lock_guard lock(mutex_);
    const auto cuts = CutsIn(part);
    for (const auto& item : part.named_parameters()) {
      const at::Tensor gradient = item.value().grad().contiguous();
      const auto cut = cuts.find(item.key());
      if (cut == cuts.end()) {
        Compare(item.key(), gradient, rank);
        continue;
      }
      at::Tensor& whole = values_[item.key()];
      if (!whole.defined()) whole = at::full(cut->second.shape, std::nan(""), gradient.options());
      ForEachBlock(whole, gradient, cut->second.shard,
                   [&](const at::Tensor& to, const at::Tensor& from) {
                     const bool filled = !to.isnan().all().item<bool>();
                     if (filled && !to.equal(from)) Report(item.key() + " of copies", rank);
                     to.copy_(from);
                   });
      const int64_t padding = gradient.numel() - cut->second.shard.elements();
      const at::Tensor rest = gradient.view(-1).slice(0, gradient.numel() - padding);
      if (rest.count_nonzero().item<int64_t>() > 0) Report(item.key() + " of padding", rank);
    }
  }

  const std::map<std::string, at::Tensor>& values() const { return values_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void Compare(const std::string& name, const at::Tensor& gradient, int rank) {
    at::Tensor& first = values_[name];
    if (!first.defined()) first = gradient.clone();
    if (!first.equal(gradient)) Report(name, rank);
  }
  void Report(const std::string& what, int rank) {
    problems_.push_back(what + " differs on rank " + std::to_string(rank));
  }

  std::mutex mutex_;
  std::map<std::string, at::Tensor> values_;
  std::vector<std::string> problems_;
};

}  // namespace dslaunch
