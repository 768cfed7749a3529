#include "trainer/base/by_rank.h"

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

std::vector<size_t> Named(std::vector<size_t> ranks, const std::vector<size_t>& names) {
  if (names.empty()) return ranks;
  for (size_t& rank : ranks) rank = names.at(rank);
  return ranks;
}

}  // namespace dslaunch
