#include "base/text/rank_list.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxRanges = 8;

}  // namespace

std::string RankRanges(const std::vector<int>& ranks, const std::string& separator) {
  std::string list;
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size(); ++ranges) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (ranges == kMaxRanges) return list + " and " + std::to_string(ranks.size() - i) + " more";
    list += (i == 0 ? "" : separator) + std::to_string(ranks[i]);
    if (last > i) list += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return list;
}

}  // namespace dslaunch
