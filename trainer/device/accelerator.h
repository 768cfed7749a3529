// The functions of CUDA that the trainer needs beyond LibTorch's general interfaces (c10::Stream,
// c10::Event, pinned tensors). trainer/cuda/ implements them in a separate library; no other code
// includes CUDA's headers. Tests have an implementation for the CPU
// (tests/support/recorded_graph.h).
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

// Work on a device that is recorded once and run many times, with the same memory. Used by one
// thread.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Runs `work` so that its device operations are recorded but not executed. Tensors created by
  // `work` stay valid, and each replay overwrites them. Throws c10::Error if an operation cannot be
  // recorded, such as waiting for the device; the graph is then empty again. Call it once.
  virtual void Capture(const std::function<void()>& work) = 0;
  // Runs the recorded operations on the current stream, without waiting for them.
  virtual void Replay() = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual c10::DeviceType type() const = 0;
  // Selects the device for this process, and gives the calling thread a stream of its own there,
  // because the default stream cannot be recorded.
  virtual void Use(int index) = 0;
  virtual std::string Name(int index) const = 0;  // "NVIDIA H100 80GB HBM3"
  virtual DeviceTraits Traits(int index) const = 0;
  // Creates a backend for collectives over tensors of the device. It connects only at the first
  // collective. An operation that exceeds `timeout` ends the process.
  virtual c10::intrusive_ptr<c10d::Backend> MakeBackend(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
      std::chrono::milliseconds timeout) = 0;
  virtual std::unique_ptr<StepGraph> MakeStepGraph() = 0;
  // For StartFusedKernels, on whose thread it runs. Returns null if the device has no kernels.
  virtual std::unique_ptr<FusedKernels> MakeFusedKernels(int /*index*/) { return nullptr; }
};

// The device on which a process computes.
struct RankDevice {
  c10::Device device = c10::kCPU;
  Accelerator* accelerator = nullptr;  // null for the CPU; exists until the process ends
};

// The only symbol of the library, `dslaunch_cuda`.
struct AcceleratorSymbol {
  // The versions it was compiled with; the rest is used only if the trainer's are the same.
  const char* stamp;
  Accelerator* (*make)();  // called once
};

}  // namespace dslaunch
