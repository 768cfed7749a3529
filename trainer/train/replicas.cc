#include "trainer/train/replicas.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "trainer/base/by_rank.h"

namespace dslaunch {
namespace {

constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;

// Returns `hash` with `word` mixed in. For each `word` this is a bijection of `hash`, so no later
// step can cancel a difference.
uint64_t Mix(uint64_t hash, uint64_t word) { return std::rotl((hash ^ word) * kOdd, 29); }

}  // namespace

uint64_t HashBytes(const void* data, size_t bytes, uint64_t hash) {
  const char* at = static_cast<const char*>(data);
  uint64_t word = 0;
  for (size_t i = 0; i < bytes / sizeof word; ++i, at += sizeof word) {
    std::memcpy(&word, at, sizeof word);
    hash = Mix(hash, word);
  }
  word = 0;
  if (const size_t rest = bytes % sizeof word; rest > 0) std::memcpy(&word, at, rest);
  return Mix(Mix(hash, word), bytes);
}

std::string DriftMessage(const std::vector<uint64_t>& hashes, int64_t step, int64_t good_step,
                         const std::vector<size_t>& names) {
  const std::vector<std::vector<size_t>> groups = GroupRanks(hashes);
  if (groups.size() < 2) return "";
  const auto& majority = *std::ranges::max_element(groups, {}, &std::vector<size_t>::size);
  std::string who;
  if (2 * majority.size() > hashes.size()) {
    std::vector<size_t> drifted;
    for (size_t rank = 0; rank < hashes.size(); ++rank) {
      if (hashes[rank] != hashes[majority[0]]) drifted.push_back(rank);
    }
    who = "the weights of " + RankList(Named(drifted, names)) +
          " differ from those of the other ranks";
  } else {
    who = "the weights differ between groups of ranks, none of which is the majority:";
    for (const std::vector<size_t>& ranks : groups)
      who += " (" + RankList(Named(ranks, names)) + ")";
  }
  return who + " after step " + std::to_string(step) + ", and were equal after step " +
         std::to_string(good_step) +
         ": a hardware fault or a bug; resume from a checkpoint of that step or an earlier one "
         "(--resume TAG)";
}

}  // namespace dslaunch
