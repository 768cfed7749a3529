// Implements Accelerator in libdslaunch_cuda.so. Only this folder includes the headers of CUDA and
// NCCL.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dslaunch/plugin.h"
#include "trainer/cuda/cuda_kernels.h"
#include "trainer/device/accelerator.h"

// ProcessGroupNCCL's options contain a structure of NCCL, so NCCL's version must match the version
// that LibTorch uses.
static_assert(NCCL_MAJOR == 2 && NCCL_MINOR == 28, "the headers of LibTorch's own NCCL are needed");
static_assert(CUDART_VERSION / 1000 == DSLAUNCH_CUDA_MAJOR,
              "the headers of LibTorch's own CUDA are needed");

namespace dslaunch {
namespace {

class CudaStepGraph : public StepGraph {
 public:
  void Capture(const std::function<void()>& work) override {
    c10::cuda::getCurrentCUDAStream().synchronize();
    // Other threads meanwhile read data into pinned memory and watch NCCL, so only calls of this
    // thread may invalidate the recording.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const std::exception&) {
        // The error of `work` also caused this error, so only the error of `work` is reported.
      }
      graph_.reset();
      throw;
    }
    graph_.capture_end();
  }
  void Replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaAccelerator : public Accelerator {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }

  void Use(int index) override {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    const auto device = static_cast<c10::DeviceIndex>(index);
    c10::cuda::set_device(device);
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device));
  }

  std::string Name(int index) const override {
    return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->name;
  }

  // Compute capability 5.3 added arithmetic in fp16, and 8.0 in bf16 (CUDA C++ Programming Guide,
  // table of arithmetic instructions).
  DeviceTraits Traits(int index) const override {
    const cudaDeviceProp& device =
        *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
    const int capability = 10 * device.major + device.minor;
    return {.memory_bytes = static_cast<int64_t>(device.totalGlobalMem),
            .float16 = capability >= 53,
            .bfloat16 = capability >= 80};
  }

  c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int world_size,
                                                std::chrono::milliseconds timeout) override {
    // With the value 2 (CleanUpOnly), the watchdog aborts failed operations but not the process,
    // which ends with its own error instead (trainer/comm/backend_watch.h).
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, options);
  }

  std::unique_ptr<StepGraph> MakeStepGraph() override { return std::make_unique<CudaStepGraph>(); }

  std::unique_ptr<FusedKernels> MakeFusedKernels(int index) override {
    return MakeCudaKernels(index);
  }
};

Accelerator* MakeAccelerator() { return new CudaAccelerator; }

}  // namespace
}  // namespace dslaunch

extern "C" __attribute__((visibility("default"))) const ::dslaunch::AcceleratorSymbol dslaunch_cuda;
extern "C" const ::dslaunch::AcceleratorSymbol dslaunch_cuda = {DSLAUNCH_PLUGIN_STAMP,
                                                                &::dslaunch::MakeAccelerator};
