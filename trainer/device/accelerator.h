// Declares the functions of CUDA that the trainer needs beyond LibTorch's general interfaces
// (c10::Stream, c10::Event, pinned tensors). trainer/cuda/ implements them in a separate library,
// and no other code includes CUDA's headers. Tests use an implementation for the CPU
// (tests/support/cuda/recorded_graph.h).
#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer/device/device_traits.h"
#include "trainer/device/fused_kernels.h"

namespace dslaunch {

// Records work on a device once, and then runs it many times with the same memory. Not thread-safe.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Runs `work` so that its operations on the device are recorded, but not executed. Tensors that
  // `work` creates stay valid, and each replay overwrites them. Throws c10::Error if an operation
  // cannot be recorded, such as waiting for the device; the graph is empty afterwards. Call it only
  // once.
  virtual void Capture(const std::function<void()>& work) = 0;
  // Runs the recorded operations on the current stream, without waiting for them.
  virtual void Replay() = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual c10::DeviceType type() const = 0;
  // Selects the device `index` for this process. The default stream cannot be recorded, so the
  // calling thread gets its own stream on the device.
  virtual void Use(int index) = 0;
  // Returns the name of a device, such as "NVIDIA H100 80GB HBM3".
  virtual std::string Name(int index) const = 0;
  virtual DeviceTraits Traits(int index) const = 0;
  // Creates a backend for collectives over tensors on the device. It connects only at the first
  // collective. If an operation takes longer than `timeout`, the process ends.
  virtual c10::intrusive_ptr<c10d::Backend> MakeBackend(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
      std::chrono::milliseconds timeout) = 0;
  virtual std::unique_ptr<StepGraph> MakeStepGraph() = 0;
  // Compiles the fused kernels for the device; null if the device has none. StartFusedKernels calls
  // it on its own thread.
  virtual std::unique_ptr<FusedKernels> MakeFusedKernels(int /*index*/) { return nullptr; }
};

// The device on which a process computes.
struct RankDevice {
  c10::Device device = c10::kCPU;
  // CUDA functions for the device; null for the CPU; never destroyed.
  Accelerator* accelerator = nullptr;
};

// Type of `dslaunch_cuda`, the only symbol that the CUDA library exports.
struct AcceleratorSymbol {
  // Versions with which the library was compiled. Use the other members only if they equal the
  // trainer's versions.
  const char* stamp;
  Accelerator* (*make)();  // creates the accelerator; called only once
};

}  // namespace dslaunch
