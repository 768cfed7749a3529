// Chooses the copy that all ranks of a job load. Pure.
//
// In each round, every rank offers the copies that it may still have, and all ranks choose the
// newest copy that every rank offers. Each rank then reads that copy. In the next round, the rank
// either names the copy as verified or does not offer it again. So no rank reads more copies than
// necessary. The rounds end, because a rank has at most two copies.
//
// The ranks choose the copy, not the launcher, because only the ranks have the layout of their
// state. A copy is verified by reading it, which the ranks do anyway.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/memory_checkpoint/slot_header.h"

namespace dslaunch {

// The copies that one rank offers in a round.
struct CopyOffer {
  std::vector<CopyId> copies = {};  // at most two copies that are not known to be damaged
  // Copy chosen in the last round, if the rank has read all of it.
  std::optional<CopyId> verified = {};

  bool operator==(const CopyOffer&) const = default;

  std::string ToText() const;
  // Parses the result of ToText(); returns nullopt for any other text.
  static std::optional<CopyOffer> FromText(std::string_view text);
};

struct CopyChoice {
  // The newest copy that all ranks offer; nullopt if they have no copy in common.
  std::optional<CopyId> copy = {};
  bool is_final = false;      // true if `copy` is nullopt or all ranks have verified it
  std::string why_none = {};  // reason why `copy` is nullopt; else empty
};

// Chooses a copy from the offers of all ranks, in the order of the ranks. The result is the same on
// each rank.
CopyChoice ChooseCopy(const std::vector<CopyOffer>& offers);

}  // namespace dslaunch
