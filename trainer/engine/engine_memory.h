// Computes the sizes of an engine's live tensors.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "dslaunch/engine.h"
#include "trainer/base/memory_bytes.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/step/optimizer_step.h"

namespace dslaunch {

// Measures an engine's memory. The arguments of the constructor must outlive this object. Not
// thread-safe.
class EngineMemory {
 public:
  // Prepares to measure. If `measures_activations`, counts this thread's allocations, so each
  // allocation takes a lock.
  EngineMemory(const OptimizerStep& step, const torch::nn::Module& module,
               bool measures_activations);

  // Records the start of a training pass.
  void BeginPass();
  // Records the start of the backward pass of a training pass.
  void BeginBackward();

  // Returns the current memory use.
  MemoryUse Now() const;
  // Returns the memory at the start of the backward pass with the largest activations.
  const MemoryUse& at_backward() const { return at_backward_; }

 private:
  int64_t LiveBytes() const;

  const OptimizerStep& step_;
  const torch::nn::Module& module_;
  std::optional<ActivationMeter> meter_;
  int64_t live_before_ = 0;  // number of live bytes at the start of the current pass
  MemoryUse at_backward_;
};

// Converts `use` to the form that reports and profiles use. `peak_rss` is the process's peak
// resident set in bytes.
inline MemoryBytes ToBytes(const MemoryUse& use, int64_t peak_rss) {
  return {.parameters = use.parameters,
          .gradients = use.gradients,
          .buckets = use.buckets,
          .optimizer = use.optimizer,
          .buffers = use.buffers,
          .activations = use.activations,
          .peak_rss = peak_rss};
}

}  // namespace dslaunch
