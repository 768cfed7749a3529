#include "trainer/comm/by_rank.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr size_t kMaxListed = 8;

}  // namespace

std::string RankList(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t listed = std::min(ranks.size(), kMaxListed);
  for (size_t i = 0; i < listed; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > listed) text += " and " + std::to_string(ranks.size() - listed) + " more";
  return text;
}

}  // namespace dslaunch
