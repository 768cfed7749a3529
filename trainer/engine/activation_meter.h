// Measures the memory that a thread allocates for tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// Counts the allocations of this thread while it lives; allocations then take a lock. Several
// meters of one thread share the counts, which begin with the first one and end with the last.
// Counts nothing if a profiler is recording. Use it in the thread that made it.
class ActivationMeter {
 public:
  ActivationMeter();
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  static bool AnyInThisThread();

  // Returns whether there was no Pause since the first meter was made. Tensors allocated in a Pause
  // are not counted, though they may outlive it.
  bool counted_all() const;
  // Bytes allocated since the first meter was made and not freed yet.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // the largest live_bytes() so far

  // While it lives, the meters of this thread count nothing, because LibTorch's profiler needs
  // their place and would take them for its own.
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
