// How much memory a forward pass leaves to its backward pass.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// Counts what this thread allocates and frees, while it lives; allocations then take a lock. It
// counts nothing where a profiler does already. Use in the thread that made it.
class ActivationMeter {
 public:
  ActivationMeter();
  ~ActivationMeter();
  ActivationMeter(const ActivationMeter&) = delete;
  ActivationMeter& operator=(const ActivationMeter&) = delete;

  // Allocated and not yet freed, of what was allocated since this was made.
  int64_t live_bytes() const;

 private:
  class Reporter;
  std::shared_ptr<Reporter> reporter_;
  bool counts_ = false;
};

}  // namespace dslaunch
