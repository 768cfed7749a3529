// Names for the uses of a rank's time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Every moment of a rank is in one bucket. The values are indexes into RankGoodput.us.
enum class GoodputBucket : uint8_t {
  kConnect,     // its node is being reached and prepared
  kRendezvous,  // its node has no rank: it waits for the other nodes, or for the next attempt
  kStart,       // from the assignment of the rank until its program reports that it is ready
  kFirstStep,   // from ready to the first step: the first batch, compilation
  kProductive,  // steps that are new; a program that reports no steps: it runs
  kRecomputed,  // steps that an earlier attempt had made
  kSave,        // the program reports that it saves a checkpoint
  kWaiting,     // waits for a slower rank, or has ended before the others
  kHang,        // no rank makes a step or gives a sign of life
  kTeardown,    // is being ended, or has failed
  kLost,        // its node was lost, or the rank had no node
};
inline constexpr size_t kGoodputBuckets = 11;

// Names for users and programs, by bucket.
inline constexpr std::array<const char*, kGoodputBuckets> kGoodputNames = {
    "connect", "rendezvous", "start", "first_step", "productive", "recomputed",
    "save",    "waiting",    "hang",  "teardown",   "lost"};

// Microseconds, by bucket.
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
