#include "trainer/engine/engine_memory.h"

#include "trainer/parallel/module_tensors.h"

namespace dslaunch {

EngineMemory::EngineMemory(const OptimizerStep& step, const torch::nn::Module& module,
                           bool measures_activations)
    : step_(step), module_(module) {
  if (measures_activations) meter_.emplace();
}

// Returns the live bytes without parameters, which a pass gathers and releases.
int64_t EngineMemory::LiveBytes() const {
  return meter_->live_bytes() - step_.states().memory().parameters;
}

void EngineMemory::BeginPass() {
  if (meter_) live_before_ = LiveBytes();
}

void EngineMemory::BeginBackward() {
  if (!meter_ || !meter_->counted_all()) return;
  const int64_t activations = LiveBytes() - live_before_;
  if (activations < at_backward_.activations) return;
  at_backward_.activations = activations;
  at_backward_ = Now();
  at_backward_.buckets = step_.states().live_bucket_bytes();
  at_backward_.allocated = meter_->live_bytes();
}

MemoryUse EngineMemory::Now() const {
  MemoryUse use = step_.states().memory();
  for (const Optimizer::State& state : step_.optimizer().States()) {
    use.optimizer += static_cast<int64_t>(state.tensor.nbytes());
  }
  for (const RankTensor& item : step_.RankTensors()) {
    use.optimizer += static_cast<int64_t>(item.tensor.nbytes());
  }
  use.buffers = Bytes(Unique(module_.named_buffers()));
  use.activations = at_backward_.activations;
  return use;
}

}  // namespace dslaunch
