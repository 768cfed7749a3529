#include "trainer/program/replicas.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

namespace dslaunch {
namespace {

constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;

// For each value of the other argument a bijection, so that no later step undoes a difference.
uint64_t Mix(uint64_t hash, uint64_t word) { return std::rotl((hash ^ word) * kOdd, 29); }

std::string RankList(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

uint64_t HashBytes(const void* data, size_t bytes, uint64_t hash) {
  const char* at = static_cast<const char*>(data);
  uint64_t word = 0;
  for (size_t i = 0; i < bytes / sizeof word; ++i, at += sizeof word) {
    std::memcpy(&word, at, sizeof word);
    hash = Mix(hash, word);
  }
  word = 0;
  std::memcpy(&word, at, bytes % sizeof word);
  return Mix(Mix(hash, word), bytes);
}

std::string DriftMessage(const std::vector<uint64_t>& hashes, int64_t step, int64_t good_step) {
  std::map<uint64_t, std::vector<size_t>> ranks_of;
  for (size_t rank = 0; rank < hashes.size(); ++rank) ranks_of[hashes[rank]].push_back(rank);
  if (ranks_of.size() <= 1) return "";
  const auto largest =
      std::ranges::max_element(ranks_of, {}, [](const auto& item) { return item.second.size(); });
  std::string who;
  if (2 * largest->second.size() > hashes.size()) {
    std::vector<size_t> drifted;
    for (const auto& [hash, ranks] : ranks_of) {
      if (hash != largest->first) drifted.insert(drifted.end(), ranks.begin(), ranks.end());
    }
    std::ranges::sort(drifted);
    who = "the weights of " + RankList(drifted) + " differ from those of the other ranks";
  } else {
    who = "the weights differ between groups of ranks, none of which is the majority:";
    for (const auto& [hash, ranks] : ranks_of) who += " (" + RankList(ranks) + ")";
  }
  return who + " after step " + std::to_string(step) + ", and were equal after step " +
         std::to_string(good_step) +
         ": a defective machine or a bug; go on from a checkpoint that is not later than that "
         "(--resume TAG)";
}

}  // namespace dslaunch
