// Simulates CUDA graphs on the CPU: an accelerator that records the operations of a step with their
// tensors, and runs them again on the same memory. So a number that a step passed to an operation
// by value keeps its value from the recording. Waiting for the device (item()) is refused while
// recording, as with CUDA.
#pragma once

#include <memory>

#include "trainer/device/accelerator.h"

namespace dslaunch {

class RecordingAccelerator : public Accelerator {
 public:
  c10::DeviceType type() const override { return c10::kCPU; }
  void Use(int) override {}
  std::string Name(int) const override { return "a CPU that records"; }
  DeviceTraits Traits(int) const override { return {}; }
  // Never called, because on a CPU the group's own backend is used.
  c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                                std::chrono::milliseconds) override {
    return nullptr;
  }
  std::unique_ptr<StepGraph> MakeStepGraph() override;

  int recorded() const { return recorded_; }
  int replayed() const { return replayed_; }

 private:
  friend class RecordedGraph;
  int recorded_ = 0, replayed_ = 0;
};

}  // namespace dslaunch
