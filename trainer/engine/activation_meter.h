// How much memory tensors take, of what a thread allocates.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// Counts what this thread allocates, while it lives; allocations then take a lock. Several of one
// thread count together from the first one on, as long as that lives. Where
// a profiler records already nothing is counted. Use in the thread that made it.
class ActivationMeter {
 public:
  ActivationMeter();
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  static bool AnyInThisThread();

  // Whether there was no Pause since the first was made. What is allocated in one is not counted,
  // though it may live on.
  bool counted_all() const;
  // Allocated and not yet freed, of what was allocated since the first was made.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // the most that this has been

  // While it lives, this thread's meters count nothing: LibTorch's profiler takes their place, and
  // takes whatever it finds there for its own.
  class Pause;

 private:
  class Reporter;
  std::shared_ptr<Reporter> reporter_;
  bool counts_ = false;
};

class ActivationMeter::Pause {
 public:
  Pause();
  ~Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  std::shared_ptr<Reporter> reporter_;
};

}  // namespace dslaunch
