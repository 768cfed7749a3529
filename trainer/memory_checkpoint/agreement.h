// Chooses the copy that all ranks of a job load. Pure.
//
// In each round every rank offers the copies that it may still have, and all ranks choose the
// newest copy that every rank offers. Each rank then reads that copy. In the next round it either
// names the copy as verified or does not offer it again. So no rank reads more copies than
// necessary. The rounds end, because a rank has at most two copies.
//
// The ranks decide this, not the launcher, because only the ranks have the layout of their state,
// and because a copy is verified by reading it, which the ranks do anyway.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/memory_checkpoint/slot_header.h"

namespace dslaunch {

// The report of one rank in a round.
struct CopyOffer {
  std::vector<CopyId> copies = {};      // copies not known to be damaged, at most two
  std::optional<CopyId> verified = {};  // choice of the last round, if this rank has read it whole

  bool operator==(const CopyOffer&) const = default;

  std::string ToText() const;
  // Parses the result of ToText(); nullopt for any other text.
  static std::optional<CopyOffer> FromText(std::string_view text);
};

struct CopyChoice {
  std::optional<CopyId> copy = {};  // newest copy that all ranks offer; nullopt if there is none
  bool is_final = false;            // true if there is no copy, or if all ranks have verified it
  std::string why_none = {};        // reason if there is no copy
};

// Chooses from the offers of all ranks, in the order of the ranks. The result is the same on each
// rank.
CopyChoice ChooseCopy(const std::vector<CopyOffer>& offers);

}  // namespace dslaunch
