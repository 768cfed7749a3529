// Defines the layout of the memory that the ranks of one host share. The memory is initially zero.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trainer/comm/shm/doorbell.h"

namespace dslaunch {

// Maximum size in bytes of a chunk, which is a part of a tensor that a collective processes at
// once.
inline constexpr size_t kChunkBytes = 1 << 20;
// Number of slots of a rank. A slot holds one pending chunk of a collective: one slot is filled
// while another is reduced and a third is read.
inline constexpr uint64_t kChunkSlots = 3;

// Size in bytes of the ring buffer for messages from one rank to another.
inline constexpr size_t kRingBytes = 1 << 20;
// Maximum number of pending requests for messages between two ranks.
inline constexpr uint64_t kMaxRequests = 256;
inline constexpr size_t kCacheLine = 64;

static_assert(std::atomic<uint64_t>::is_always_lock_free,
              "a lock of one process would be none of another");

// The state of a rank in shared memory. Only this rank writes the counts; all ranks read them.
struct alignas(kCacheLine) RankWords {
  Doorbell bell;                   // rung after a change that this rank may wait for
  std::atomic<uint32_t> has_left;  // 1 if the rank has left
  // Number of chunks that this rank has staged, combined and read, over all collectives.
  alignas(kCacheLine) std::atomic<uint64_t> staged;
  std::atomic<uint64_t> combined;
  std::atomic<uint64_t> taken;
};

// Identifies the collective that a rank runs. Stored at the beginning of each slot.
struct alignas(kCacheLine) ChunkLabel {
  uint32_t kind = 0;       // value of c10d::OpType
  uint32_t dtype = 0;      // value of at::ScalarType of the tensor
  uint32_t reduction = 0;  // value of c10d::ReduceOp::RedOpType for a reduction
  uint32_t root = 0;
  uint64_t bytes = 0;  // size of the tensor in bytes
  bool operator==(const ChunkLabel&) const = default;
};

// A receiver's request for a message.
struct MessageRequest {
  uint64_t tag = 0;
};

// Counters of messages from one rank to another. The sender's counters and the receiver's counters
// never share a cache line.
struct alignas(kCacheLine) StreamWords {
  std::atomic<uint64_t> asked;                      // number of requests that the receiver has made
  std::atomic<uint64_t> read;                       // number of bytes that the receiver has read
  alignas(kCacheLine) std::atomic<uint64_t> heard;  // number of requests that the sender has read
  std::atomic<uint64_t> written;                    // number of bytes that the sender has written
  // Ring of requests; request i is at index i % size.
  alignas(kCacheLine) std::array<MessageRequest, kMaxRequests> requests;
};

// Gives typed access to the shared memory. The references are valid as long as the memory.
class SharedLayout {
 public:
  static size_t Bytes(size_t ranks) {
    return ranks * (sizeof(RankWords) + kChunkSlots * kSlotBytes) +
           ranks * ranks * (sizeof(StreamWords) + kRingBytes);
  }

  SharedLayout(std::byte* memory, size_t ranks) : memory_(memory), ranks_(ranks) {}

  size_t ranks() const { return ranks_; }
  RankWords& words(size_t rank) const { return reinterpret_cast<RankWords*>(memory_)[rank]; }
  StreamWords& stream(size_t from, size_t to) const {
    return reinterpret_cast<StreamWords*>(memory_ + ranks_ * sizeof(RankWords))[from * ranks_ + to];
  }
  ChunkLabel& label(size_t rank, uint64_t chunk) const {
    return *reinterpret_cast<ChunkLabel*>(Slot(rank, chunk));
  }
  std::byte* chunk(size_t rank, uint64_t chunk) const {
    return Slot(rank, chunk) + sizeof(ChunkLabel);
  }
  std::byte* ring(size_t from, size_t to) const {
    return Slot(ranks_, 0) + (from * ranks_ + to) * kRingBytes;
  }

 private:
  static constexpr size_t kSlotBytes = sizeof(ChunkLabel) + kChunkBytes;

  std::byte* Slot(size_t rank, uint64_t chunk) const {
    return memory_ + ranks_ * sizeof(RankWords) + ranks_ * ranks_ * sizeof(StreamWords) +
           (rank * kChunkSlots + chunk % kChunkSlots) * kSlotBytes;
  }

  std::byte* memory_;
  size_t ranks_;
};

}  // namespace dslaunch
