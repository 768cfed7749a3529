#include "trainer/comm/gather_texts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace dslaunch {

std::vector<std::string> GatherTexts(const ProcessGroup& group, const std::string& own) {
  const at::Tensor sizes =
      group.AllGather(at::scalar_tensor(static_cast<int64_t>(own.size()), at::kLong));
  const auto longest = sizes.max().item<int64_t>();
  std::vector<std::string> texts(static_cast<size_t>(group.world_size()));
  if (longest == 0) return texts;
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), own.data(), own.size());
  const at::Tensor all = group.AllGather(padded);
  for (int rank = 0; rank < group.world_size(); ++rank) {
    texts[static_cast<size_t>(rank)].assign(
        static_cast<const char*>(all.const_data_ptr()) + rank * longest,
        static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

std::set<std::string> GatherLines(const ProcessGroup& group, const std::string& own) {
  std::set<std::string> lines;
  for (const std::string& text : GatherTexts(group, own)) {
    for (size_t start = 0; start < text.size();) {
      const size_t end = text.find('\n', start);
      lines.insert(text.substr(start, end - start));
      start = end + 1;
    }
  }
  return lines;
}

}  // namespace dslaunch
