// Measures the memory that a thread allocates for tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// Counts the allocations of this thread during the meter's lifetime. Each allocation then takes a
// lock. Several meters of a thread share the counts, which begin with the first meter and end with
// the last. Counts nothing if a profiler is recording. Use a meter only in the thread that created
// it.
class ActivationMeter {
 public:
  ActivationMeter();
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  static bool AnyInThisThread();

  // Returns whether no Pause has occurred since the first meter was created. Tensors that are
  // allocated during a Pause are never counted, although they may outlive the Pause.
  bool counted_all() const;
  // Returns the number of bytes that were allocated since the first meter was created and are not
  // freed.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // returns the largest live_bytes() so far

  // Stops the meters of this thread for the lifetime of the object. A Pause must surround a use of
  // LibTorch's profiler, which uses the same thread-local slot and would mistake a meter for a
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
