// Decides which rank may begin its next step if servers update as gradients arrive. Implements
// bounded staleness (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server", NIPS 2013) without I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

// The state of one run. Each rank makes the steps first_step + 1, first_step + 2 and so on. A step
// lasts from OnBegun to OnMade. With a staleness of 0, no rank begins a step before every rank has
// made the previous step.
class StaleSync {
 public:
  enum class Turn {
    kGo,    // the next step may begin
    kWait,  // the step may not begin yet
    kStop,  // there is no next step
  };

  // Creates the state after `first_step`. No rank may begin a step before the first HoldAfter.
  StaleSync(int ranks, int64_t staleness, int64_t first_step);

  // Returns whether `rank` may begin its next step.
  Turn TurnOf(int rank) const;
  // Begins the next step of `rank`.
  void OnBegun(int rank);
  // Ends a step of `rank`. Returns false, and changes nothing, if the rank is not in that step.
  bool OnMade(int rank, int64_t step);
  void OnLeft(int rank);  // marks that the rank makes no more steps
  void OnLost(int rank);  // like OnLeft, and no rank waits for the lost rank's remaining steps

  // Prevents all ranks from beginning a step after `step` until the next call.
  void HoldAfter(int64_t step) { hold_ = step; }
  // Ends the run: no rank begins another step.
  void Stop() { stopped_ = true; }

  // Returns whether every rank that is not lost has made `step`.
  bool AllMade(int64_t step) const;
  // Returns whether no rank is in a step.
  bool NoRankInStep() const;

  std::vector<int> lost() const;
  // Returns the rank that has made the fewest steps among the ranks that continue; nullopt if every
  // rank has left or is lost.
  std::optional<int> Slowest() const;
  // Returns the last step that the rank has made.
  int64_t made(int rank) const { return ranks_[static_cast<size_t>(rank)].made; }

 private:
  struct Rank {
    int64_t made = 0;  // last step that the rank has completed
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
