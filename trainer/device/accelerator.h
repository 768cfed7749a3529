// What the trainer needs of CUDA beyond LibTorch's general interfaces (c10::Stream, c10::Event,
// pinned tensors). trainer/cuda/ implements it in a library of its own; nothing else includes
// CUDA's headers. Tests have an implementation for the CPU (tests/support/recorded_graph.h).
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

// Work on a device that is recorded once and run many times, with the same memory. One thread.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Runs `work` so that its device operations are recorded and not executed. Tensors that `work`
  // makes stay valid, and each replay writes them again. Throws c10::Error where something in it
  // cannot be recorded, such as waiting for the device; the graph is then as if new. Once.
  virtual void Capture(const std::function<void()>& work) = 0;
  // Does what was recorded, in the order of the current stream. Does not wait for it.
  virtual void Replay() = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual c10::DeviceType type() const = 0;
  // Makes it the device of this process, and gives the calling thread a stream of its own there,
  // since the default one cannot be recorded.
  virtual void Use(int index) = 0;
  virtual std::string Name(int index) const = 0;  // "NVIDIA H100 80GB HBM3"
  virtual DeviceTraits Traits(int index) const = 0;
  // Collectives over tensors of the device. Makes connections only with the first of them. What
  // takes longer than `timeout` ends the process.
  virtual c10::intrusive_ptr<c10d::Backend> MakeBackend(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
      std::chrono::milliseconds timeout) = 0;
  virtual std::unique_ptr<StepGraph> MakeStepGraph() = 0;
  // For StartFusedKernels, in whose thread it runs. Null: it has none.
  virtual std::unique_ptr<FusedKernels> MakeFusedKernels(int /*index*/) { return nullptr; }
};

// What a process computes on.
struct RankDevice {
  c10::Device device = c10::kCPU;
  Accelerator* accelerator = nullptr;  // null for the CPU; lives until the process ends
};

// The one symbol of the library, `dslaunch_cuda`.
struct AcceleratorSymbol {
  // What it was compiled with; the rest is used only where the trainer has the same.
  const char* stamp;
  Accelerator* (*make)();  // called once
};

}  // namespace dslaunch
