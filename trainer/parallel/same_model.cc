#include "trainer/parallel/same_model.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "trainer/base/by_rank.h"
#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/desync_detector.h"
#include "trainer/comm/gather_texts.h"

namespace dslaunch {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;

// Returns one line for each tensor: its name, dtype, shape, and whether it requires a gradient.
std::string Describe(const std::vector<NamedTensor>& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += c10::str(name, " ", tensor.scalar_type(), " ", tensor.sizes(),
                     tensor.requires_grad() ? "" : " without gradient", "\n");
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

}  // namespace

void CheckSameOnAllRanks(const ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  const std::string text = Describe(tensors);
  const at::Tensor digest = at::empty({2}, at::kLong);
  digest[0] = static_cast<int64_t>(text.size());
  digest[1] = static_cast<int64_t>(Crc32(text.data(), text.size()));
  const at::Tensor digests = group.AllGather(digest);
  if ((digests == digest).all().item<bool>()) return;

  std::vector<std::vector<std::string>> lists;
  size_t longest = 0;
  for (const std::string& each : GatherTexts(group, text)) {
    lists.push_back(Lines(each));
    longest = std::max(longest, lists.back().size());
  }
  for (size_t i = 0; i < longest; ++i) {
    std::vector<std::string> here;
    for (const std::vector<std::string>& list : lists) {
      here.push_back(i < list.size() ? list[i]
                                     : "no such tensor: there are " + std::to_string(list.size()));
    }
    if (GroupRanks(here).size() == 1) continue;
    throw TrainError(
        ExitCode::kBadInput,
        "the ranks' models differ, first in tensor " + std::to_string(i + 1) + " (" +
            ByRank(
                here, [](const std::string& line) { return line; }, group.job_ranks()) +
            "); every rank must run the same program with the same configuration");
  }
}

void BroadcastFromRank0(const ProcessGroup& group, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  std::vector<at::Tensor> detached;
  for (const at::Tensor& tensor : tensors) detached.push_back(tensor.detach());
  group.desync_detector().Wait(
      group.desync_detector().Begin("the model's tensors from rank 0"), [&] {
        c10d::broadcast_coalesced(group.c10d_group(), detached, kBroadcastBytes, /*rank=*/0);
      });
}

void CheckSameModel(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                    const std::vector<at::Tensor>& buffers, bool may_be_empty) {
  if (parameters.empty() && !may_be_empty) {
    throw TrainError(ExitCode::kBadInput,
                     "the model has no parameter that requires a gradient, so there is nothing to "
                     "train");
  }
  std::vector<NamedTensor> compared = parameters;
  for (const at::Tensor& buffer : buffers) {
    compared.push_back({"buffer " + std::to_string(compared.size() - parameters.size()), buffer});
  }
  CheckSameOnAllRanks(group, compared);
}

}  // namespace dslaunch
