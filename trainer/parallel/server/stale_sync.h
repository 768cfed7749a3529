// Which rank may begin its next step where servers update as gradients come: bounded staleness (Ho
// et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS
// 2013). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

// Of one run. Each rank makes steps first_step + 1, first_step + 2 ..., each from OnBegun to
// OnMade. With a staleness of 0 no rank begins a step before every rank has made the one before it.
class StaleSync {
 public:
  enum class Turn {
    kGo,    // the next step may begin
    kWait,  // not yet
    kStop,  // there is no next step
  };

  // No rank may begin a step before HoldAfter.
  StaleSync(int ranks, int64_t staleness, int64_t first_step);

  Turn TurnOf(int rank) const;
  void OnBegun(int rank);
  // False, and nothing changes: it is not in that step.
  bool OnMade(int rank, int64_t step);
  void OnLeft(int rank);  // it makes no more steps
  void OnLost(int rank);  // the same, and no rank waits for the steps that it has not made

  // No rank begins a step after `step`, until this is called again.
  void HoldAfter(int64_t step) { hold_ = step; }
  // No rank begins another step: there is none.
  void Stop() { stopped_ = true; }

  // Whether every rank that is not lost has made `step`.
  bool AllMade(int64_t step) const;
  // Whether no rank is in a step.
  bool NobodyInStep() const;

  std::vector<int> lost() const;
  // The one that has made the fewest steps of those that still make some; nullopt: each has left or
  // is lost.
  std::optional<int> Slowest() const;
  int64_t made(int rank) const { return ranks_[static_cast<size_t>(rank)].made; }

 private:
  struct Rank {
    int64_t made = 0;  // its last step
    bool in_step = false;
    bool left = false;
    bool lost = false;

    bool goes_on() const { return !left && !lost; }
  };

  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  const int64_t staleness_;
  int64_t hold_;
  bool stopped_ = false;
  std::vector<Rank> ranks_;
};

}  // namespace dslaunch
