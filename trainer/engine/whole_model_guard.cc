#include "trainer/engine/whole_model_guard.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/parallel/module_tensors.h"

namespace dslaunch {
namespace {

// Number of elements of each parameter that are compared. Random values differ early, so a few
// elements suffice.
constexpr int64_t kComparedElements = 4096;

constexpr char kHint[] =
    "Ranks that hold parts of a model (tensor parallelism) give the engine their group and the "
    "cuts "
    "of their parameters (InitializeOptions::tensor_group and cuts). Otherwise let each rank of "
    "the "
    "engine hold the whole model, whose states zero_optimization divides, or cut it into stages "
    "(PipelineModule)";

std::vector<size_t> Sorted(std::vector<size_t> ranks) {
  std::ranges::sort(ranks);
  return ranks;
}

std::string Listed(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

WholeModelGuard::WholeModelGuard(const ProcessGroup& replicas, const ProcessGroup* tensor,
                                 const torch::nn::Module& module, bool has_values)
    : replicas_(replicas), tensor_(tensor) {
  if (replicas.world_size() == 1 || !has_values) return;
  for (const NamedTensor& item : Unique(module.named_parameters())) {
    const at::Tensor first =
        item.tensor.detach().flatten().slice(0, 0, kComparedElements).to(at::kCPU).contiguous();
    names_.push_back(item.name);
    values_.push_back(static_cast<int64_t>(Crc32(first.const_data_ptr(), first.nbytes())));
  }
}

ExchangeWatch WholeModelGuard::Watch(bool forward) {
  return ExchangeWatch([this, forward](const ProcessGroup& group, bool collective) {
    Check(group, collective, forward);
  });
}

void WholeModelGuard::Check(const ProcessGroup& group, bool collective, bool forward) {
  if (group.world_size() == 1) return;
  const std::vector<size_t> members = Sorted(group.job_ranks()),
                            own = Sorted(replicas_.job_ranks());
  if (tensor_ != nullptr && std::ranges::includes(Sorted(tensor_->job_ranks()), members)) return;
  const std::string pass = forward ? "the forward pass" : "the backward pass";
  std::vector<size_t> others;
  std::ranges::set_difference(members, own, std::back_inserter(others));
  if (!others.empty()) {
    RefuseInput(pass + " exchanges tensors in a group of " + Listed(members) + ", of which " +
                Listed(others) + (others.size() == 1 ? " is" : " are") +
                " not among those that this engine gives the same parameters, " + Listed(own) +
                ": it would clip gradients by the norm of its own ranks' parameters only, and skip "
                "updates that others make. " +
                kHint);
  }
  if (members.size() < own.size()) {
    RefuseInput(pass + " exchanges tensors in a group of " + Listed(members) +
                ", which are some of those that this engine gives the same parameters, " +
                Listed(own) + ", and the mean of their gradients. " + kHint +
                "; what belongs to the whole batch is exchanged in a group of all");
  }
  if (forward && collective && !values_.empty() && !values_are_compared_) CheckValues();
}

void WholeModelGuard::CheckValues() {
  const at::Tensor all = replicas_.AllGather(at::tensor(values_, at::kLong));
  for (size_t i = 0; i < names_.size(); ++i) {
    const at::Tensor column = all.select(1, static_cast<int64_t>(i));
    const at::Tensor differ = column.ne(column[0]).nonzero();
    if (differ.numel() == 0) continue;
    const auto rank = static_cast<size_t>(differ[0].item<int64_t>());
    RefuseInput(
        "the forward pass exchanges tensors with the engine's other ranks, and the "
        "parameter " +
        names_[i] + " was not the same on " + Listed({replicas_.job_ranks()[0]}) + " and " +
        Listed({replicas_.job_ranks()[rank]}) +
        " when the engine was made, which gave all of its ranks the values of the first. " + kHint +
        "; where each rank does hold it whole, let all construct it with the same seed");
  }
  values_are_compared_ = true;
}

}  // namespace dslaunch
