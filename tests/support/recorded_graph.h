// CUDA graphs without CUDA: an accelerator whose device is the CPU. It records the operations that
// a step calls, with the tensors that it gives them, and runs them again on the same memory. So a
// number that a step has put into an operation by value stays what it was at the recording, and
// waiting for the device (item()) is refused there, as CUDA does it.
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
  // Not called: on a CPU the group's own backend serves.
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
