// Defines names for the uses of a rank's time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// The use of a rank's time. Every moment of a rank is in exactly one bucket. The values are indices
// of RankGoodput.us.
enum class GoodputBucket : uint8_t {
  kConnect,     // the rank's node is being reached and prepared
  kRendezvous,  // the node has no ranks and waits for the other nodes or for the next attempt
  kStart,       // time from the assignment of the rank until its program reports that it is ready
  kFirstStep,   // time from ready to the first step: the first batch, compilation
  kProductive,  // new steps; or all running time of a program that reports no steps
  kRecomputed,  // steps that an earlier attempt had already made
  kSave,        // the program has reported that it is saving a checkpoint
  kWaiting,     // the rank waits for a slower rank, or has ended before the others
  kHang,        // no rank makes a step or shows a sign of life
  kTeardown,    // the rank is being ended, or has failed
  kLost,        // the rank's node was lost, or the rank had no node
};
inline constexpr size_t kGoodputBuckets = 11;

// The names of the buckets for users and programs, indexed by bucket.
inline constexpr std::array<const char*, kGoodputBuckets> kGoodputNames = {
    "connect", "rendezvous", "start", "first_step", "productive", "recomputed",
    "save",    "waiting",    "hang",  "teardown",   "lost"};

// Times in microseconds, indexed by bucket.
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
