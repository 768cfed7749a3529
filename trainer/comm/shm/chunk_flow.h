// Decides which step of which chunk of a collective a rank may run next.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/comm/shm/collective.h"
#include "trainer/comm/shm/layout.h"

namespace dslaunch {

// Runs a rank's collectives, one after the other, in the order in which all ranks call them. A
// slot, which is shared memory for one chunk of a rank (layout.h), is filled again after every rank
// has read its content. A rank may therefore begin a collective while other ranks are still running
// the previous collective. Never waits. Not thread-safe.
class ChunkFlow {
 public:
  // Creates the state of `rank`. `names` has, by rank, the number of each rank in error texts.
  ChunkFlow(SharedLayout layout, size_t rank, std::vector<size_t> names)
      : layout_(layout), rank_(rank), names_(std::move(names)) {}

  bool busy() const { return collective_.has_value(); }
  // Begins `collective`. Precondition: no other collective is running.
  void Begin(Collective collective);

  // Runs the steps that are possible now. Returns false if no step was possible. Throws
  // std::runtime_error if the ranks call different collectives; this object cannot be used after
  // that.
  bool Advance();

  // Returns the ranks for which this rank waits; empty if not busy. Valid only directly after
  // Advance has returned false.
  std::vector<size_t> AwaitedRanks() const;

  // Ends the collective without accessing its tensors again. This object cannot run another
  // collective after that.
  void GiveUp() { collective_.reset(); }

 private:
  bool Stage();
  bool CombineNext();
  bool Take();
  bool HaveAll(std::atomic<uint64_t> RankWords::*count, uint64_t wanted) const;
  void CheckLabels(uint64_t chunk) const;
  void Run(const ChunkStep& step, uint64_t done);
  void Publish();

  SharedLayout layout_;
  size_t rank_;
  std::vector<size_t> names_;
  std::optional<Collective> collective_;
  // Number of the current collective's first chunk, counted over all collectives.
  uint64_t first_ = 0;
  // Numbers of chunks over all collectives; RankWords has these counts for all ranks.
  uint64_t staged_ = 0;
  uint64_t combined_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace dslaunch
