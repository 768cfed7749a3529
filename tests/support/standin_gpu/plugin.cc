// Implements libdslaunch_cuda.so for tests, with the same interface as
// trainer/cuda/cuda_accelerator.cc.
#include "dslaunch/plugin.h"

#include <ATen/Context.h>

#include "tests/support/cuda/libtorch_kernels.h"
#include "tests/support/standin_gpu/collectives.h"
#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/settings.h"
#include "tests/support/standin_gpu/streams.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {
namespace {

class StandinGraph : public StepGraph {
 public:
  void Capture(const std::function<void()>& work) override {
    standin::SynchronizeStream(standin::CurrentStream(standin::CurrentDevice()), "begin a graph",
                               /*hidden=*/false);
    graph_.BeginRecording();
    try {
      work();
    } catch (...) {
      graph_.EndRecording();
      graph_.Clear();
      throw;
    }
    graph_.EndRecording();
  }
  void Replay() override { graph_.Replay(standin::CurrentStream(standin::CurrentDevice())); }

 private:
  standin::Graph graph_;
};

class StandinAccelerator : public Accelerator {
 public:
  c10::DeviceType type() const override { return standin::kDeviceType; }
  void Use(int index) override {
    at::globalContext().lazyInitDevice(standin::kDeviceType);
    standin::SetCurrentDevice(static_cast<c10::DeviceIndex>(index));
    standin::SetCurrentStream(standin::PoolStream(standin::CurrentDevice()));
  }
  std::string Name(int) const override { return "a stand-in GPU"; }
  DeviceTraits Traits(int) const override {
    return {.memory_bytes = static_cast<int64_t>(standin::TheSettings().device_bytes)};
  }
  c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int world_size,
                                                std::chrono::milliseconds timeout) override {
    return standin::MakeBackend(store, rank, world_size, timeout);
  }
  std::unique_ptr<StepGraph> MakeStepGraph() override { return std::make_unique<StandinGraph>(); }
  std::unique_ptr<FusedKernels> MakeFusedKernels(int) override { return MakeLibtorchKernels(); }
};

Accelerator* MakeAccelerator() { return new StandinAccelerator; }

}  // namespace
}  // namespace dslaunch

extern "C" __attribute__((visibility("default"))) const ::dslaunch::AcceleratorSymbol dslaunch_cuda;
extern "C" const ::dslaunch::AcceleratorSymbol dslaunch_cuda = {DSLAUNCH_PLUGIN_STAMP,
                                                                &::dslaunch::MakeAccelerator};
