#include "trainer/comm/shm/chunk_flow.h"

#include <stdexcept>
#include <string>

namespace dslaunch {
namespace {

std::string Describe(const ChunkLabel& label) {
  return c10d::opTypeToString(static_cast<c10d::OpType>(label.kind)) + " of " +
         std::to_string(label.bytes) + " bytes";
}

}  // namespace

void ChunkFlow::Begin(Collective collective) {
  first_ = staged_;
  if (collective.chunks > 0) collective_ = std::move(collective);
}

bool ChunkFlow::Advance() {
  if (!collective_) return false;
  bool moved = false;
  while (collective_) {
    const bool staged = Stage(), combined = CombineNext(), taken = Take();
    if (!staged && !combined && !taken) break;
    moved = true;
    if (taken_ == first_ + collective_->chunks) collective_.reset();
  }
  return moved;
}

bool ChunkFlow::Stage() {
  if (staged_ == first_ + collective_->chunks) return false;
  if (staged_ >= kChunkSlots && !HaveAll(&RankWords::taken, staged_ - kChunkSlots + 1))
    return false;
  layout_.label(rank_, staged_) = collective_->label;
  Run(collective_->stage, staged_);
  layout_.words(rank_).staged.store(++staged_);
  Publish();
  return true;
}

bool ChunkFlow::CombineNext() {
  if (combined_ == staged_ || !HaveAll(&RankWords::staged, combined_ + 1)) return false;
  CheckLabels(combined_);
  Run(collective_->combine, combined_);
  layout_.words(rank_).combined.store(++combined_);
  if (!collective_->take) layout_.words(rank_).taken.store(taken_ = combined_);
  Publish();
  return true;
}

bool ChunkFlow::Take() {
  if (taken_ == combined_ || !HaveAll(&RankWords::combined, taken_ + 1)) return false;
  Run(collective_->take, taken_);
  layout_.words(rank_).taken.store(++taken_);
  Publish();
  return true;
}

bool ChunkFlow::HaveAll(std::atomic<uint64_t> RankWords::*count, uint64_t wanted) const {
  for (size_t rank = 0; rank < layout_.ranks(); ++rank) {
    if ((layout_.words(rank).*count).load() < wanted) return false;
  }
  return true;
}

std::vector<size_t> ChunkFlow::AwaitedRanks() const {
  std::vector<size_t> awaited;
  if (!collective_) return awaited;
  for (size_t rank = 0; rank < layout_.ranks(); ++rank) {
    const RankWords& words = layout_.words(rank);
    const bool must_combine = taken_ < combined_ && words.combined.load() <= taken_;
    const bool must_stage = combined_ < staged_ && words.staged.load() <= combined_;
    const bool must_take = staged_ >= kChunkSlots && words.taken.load() <= staged_ - kChunkSlots;
    if (must_combine || must_stage || must_take) awaited.push_back(rank);
  }
  return awaited;
}

void ChunkFlow::CheckLabels(uint64_t chunk) const {
  for (size_t rank = 0; rank < layout_.ranks(); ++rank) {
    const ChunkLabel& label = layout_.label(rank, chunk);
    if (label == collective_->label) continue;
    throw std::runtime_error("rank " + std::to_string(names_[rank]) + " is in " + Describe(label) +
                             ", rank " + std::to_string(names_[rank_]) + " in " +
                             Describe(collective_->label) +
                             "; all must call the same collectives in the same order");
  }
}

void ChunkFlow::Run(const ChunkStep& step, uint64_t done) {
  std::vector<std::byte*> slots;
  for (size_t rank = 0; rank < layout_.ranks(); ++rank) slots.push_back(layout_.chunk(rank, done));
  step(done - first_, slots);
}

void ChunkFlow::Publish() {
  for (size_t rank = 0; rank < layout_.ranks(); ++rank) {
    if (rank != rank_) layout_.words(rank).bell.Ring();
  }
}

}  // namespace dslaunch
