// Provides the seed of a randomized test. Set DSLAUNCH_TEST_SEED to repeat a failed run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace dslaunch {

inline uint64_t TestSeed() {
  const char* given = std::getenv("DSLAUNCH_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

// Generates the same numbers from the same seed with every standard library, which the standard
// distributions do not guarantee.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dslaunch
