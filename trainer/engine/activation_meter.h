// Measures the memory that a thread allocates for tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// Counts the allocations of this thread while the meter exists. Each allocation then takes a lock.
// Several meters of a thread share the counts, which begin with the first meter and end with the
// last. Counts nothing if a profiler is recording. Use a meter only in the thread that made it.
class ActivationMeter {
 public:
  ActivationMeter();
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  static bool AnyInThisThread();

  // Returns whether there was no Pause since the first meter was made. Tensors that are allocated
  // during a Pause are never counted, although they may outlive the Pause.
  bool counted_all() const;
  // Returns the bytes that were allocated since the first meter was made and are not freed yet.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // largest live_bytes() so far

  // While a Pause exists, the meters of this thread count nothing. It must surround a use of
  // LibTorch's profiler, which uses the same thread-local slot and would take a meter for a
  // profiler.
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
