// When a rank may do which step of which chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/comm/shm/collective.h"
#include "trainer/comm/shm/layout.h"

namespace dslaunch {

// One rank's collectives, one after the other, in the order in which all ranks call them. A slot is
// filled again once every rank has taken what was in it, so a rank may begin with a collective
// while others are still busy with the last one. Never waits. One thread.
class ChunkFlow {
 public:
  // `names` are what the ranks are called in messages, by rank.
  ChunkFlow(SharedLayout layout, size_t rank, std::vector<size_t> names)
      : layout_(layout), rank_(rank), names_(std::move(names)) {}

  bool busy() const { return collective_.has_value(); }
  // Precondition: not busy.
  void Begin(Collective collective);

  // Does what can be done now. False: nothing could be, or there was nothing to do. Throws
  // std::runtime_error where the ranks do not do the same; nothing can be done with it after that.
  bool Advance();

  // The ranks that this one waits for where Advance has just said false; empty where it is not
  // busy.
  std::vector<size_t> AwaitedRanks() const;

  // Touches nothing of the collective any more. It can do no other after that.
  void GiveUp() { collective_.reset(); }

 private:
  bool Stage();
  bool CombineNext();
  bool Take();
  bool HaveAll(std::atomic<uint64_t> RankWords::*count, uint64_t wanted) const;
  void CheckLabels(uint64_t chunk) const;
  void Run(const ChunkStep& step, uint64_t done);
  void Tell();

  SharedLayout layout_;
  size_t rank_;
  std::vector<size_t> names_;
  std::optional<Collective> collective_;
  uint64_t first_ = 0;  // chunk of this collective, of all so far
  // Chunks of all collectives so far; this rank's words say the same to the others.
  uint64_t staged_ = 0;
  uint64_t combined_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace dslaunch
