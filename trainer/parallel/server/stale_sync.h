// Decides which rank may begin its next step if servers update as gradients arrive: bounded
// staleness (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
// Server", NIPS 2013). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

// The state of one run. Each rank makes steps first_step + 1, first_step + 2 ..., each from OnBegun
// to OnMade. With a staleness of 0 no rank begins a step before every rank has made the previous
// one.
class StaleSync {
 public:
  enum class Turn {
    kGo,    // the next step may begin
    kWait,  // the step may not begin yet
    kStop,  // there is no next step
  };

  // No rank may begin a step before the first HoldAfter.
  StaleSync(int ranks, int64_t staleness, int64_t first_step);

  Turn TurnOf(int rank) const;
  void OnBegun(int rank);
  // Returns false, and changes nothing, if the rank is not in that step.
  bool OnMade(int rank, int64_t step);
  void OnLeft(int rank);  // the rank makes no more steps
  void OnLost(int rank);  // like OnLeft; no rank waits for the lost rank's remaining steps

  // Until the next call no rank begins a step after `step`.
  void HoldAfter(int64_t step) { hold_ = step; }
  // Ends the run: no rank begins another step.
  void Stop() { stopped_ = true; }

  // Whether every rank that is not lost has made `step`.
  bool AllMade(int64_t step) const;
  // Whether no rank is in a step.
  bool NoRankInStep() const;

  std::vector<int> lost() const;
  // The rank with the fewest steps made among those that continue; nullopt if each has left or is
  // lost.
  std::optional<int> Slowest() const;
  // The last step that the rank has made.
  int64_t made(int rank) const { return ranks_[static_cast<size_t>(rank)].made; }

 private:
  struct Rank {
    int64_t made = 0;  // last step
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
