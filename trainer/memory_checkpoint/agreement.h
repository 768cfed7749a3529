// How the ranks of a job choose the copy that all take. Pure.
//
// In each round every rank offers the copies that it may still have, and all choose the newest that
// every rank offers. Each rank then reads that copy and, in the next round, either names it as
// verified or does not offer it any more. So no rank reads more than it needs, and a rank has at
// most two copies, so the rounds end.
//
// The ranks decide this and not the launcher, because only they know the layout of their state, and
// because the proof that a copy is whole is to read it, which they do anyway.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/memory_checkpoint/slot_header.h"

namespace dslaunch {

// The report of one rank in a round.
struct CopyOffer {
  std::vector<CopyId> copies = {};      // not known to be damaged; at most two
  std::optional<CopyId> verified = {};  // the last round's choice, if this rank has it whole

  bool operator==(const CopyOffer&) const = default;

  std::string ToText() const;
  // Returns nullopt if `text` is not ToText's.
  static std::optional<CopyOffer> FromText(std::string_view text);
};

struct CopyChoice {
  std::optional<CopyId> copy = {};  // the newest that all ranks offer
  bool is_final = false;            // there is none, or all ranks have verified it
  std::string why_none = {};        // reason if there is none
};

// Chooses from the offers of all ranks, by rank. Returns the same on each.
CopyChoice ChooseCopy(const std::vector<CopyOffer>& offers);

}  // namespace dslaunch
