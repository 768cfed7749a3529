// Defines the uses of a rank's time, and their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// The uses of a rank's time. Every moment of a rank belongs to exactly one bucket. The values are
// indices of RankGoodput.us.
enum class GoodputBucket : uint8_t {
  kConnect,  // connecting to the rank's node and preparing it
  // Waiting without ranks for other nodes or for the next attempt.
  kRendezvous,
  kStart,       // starting: from assignment until the program reports ready
  kFirstStep,   // from ready to the first step: first batch, compilation
  kProductive,  // new steps, or all running time of a program without steps
  kRecomputed,  // steps that an earlier attempt had already completed
  kSave,        // saving a checkpoint, as reported by the program
  kWaiting,     // waiting for a slower rank, or ended before other ranks
  kHang,        // no rank completes a step or shows other activity
  kTeardown,    // ending the rank, or the rank has failed
  kLost,        // without a node, or the rank's node was lost
};
inline constexpr size_t kGoodputBuckets = 11;

// The names of the buckets for users and programs, indexed by bucket.
inline constexpr std::array<const char*, kGoodputBuckets> kGoodputNames = {
    "connect", "rendezvous", "start", "first_step", "productive", "recomputed",
    "save",    "waiting",    "hang",  "teardown",   "lost"};

// The times of a rank in microseconds, indexed by bucket.
struct GoodputTimes {
  std::array<uint64_t, kGoodputBuckets> us = {};

  uint64_t& operator[](GoodputBucket bucket) { return us[static_cast<size_t>(bucket)]; }
  uint64_t operator[](GoodputBucket bucket) const { return us[static_cast<size_t>(bucket)]; }
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (const uint64_t time : us) sum += time;
    return sum;
  }
  GoodputTimes& operator+=(const GoodputTimes& other) {
    for (size_t i = 0; i < us.size(); ++i) us[i] += other.us[i];
    return *this;
  }
  bool operator==(const GoodputTimes&) const = default;
};

}  // namespace dslaunch
