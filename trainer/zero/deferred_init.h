// Models that are too large to be built: their parameters get no memory until each is asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace dslaunch {

// What operations a constructor ran on tensors that have no memory yet.
class InitRecording {
 public:
  InitRecording();
  ~InitRecording();
  InitRecording(InitRecording&&) noexcept;

  // Whether `tensor` was made while recording and is still without memory.
  bool deferred(const at::Tensor& tensor) const;

  // Runs what was recorded, in its order, with the default generator seeded as it was when the
  // recording began: every tensor gets exactly the values that it would have got without a
  // recording, on any number of ranks. `take` is called for each of `wanted`, in the order in which
  // they become complete, with the values, which it may keep or copy from; memory that nobody keeps
  // is freed before the next one. At the end nothing is recorded any more. Throws TrainError
  // kBadInput where an operation cannot be deferred, naming it.
  void Replay(const std::vector<at::Tensor>& wanted,
              const std::function<void(size_t index, const at::Tensor& values)>& take);

 private:
  friend InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Seeds the default generator and runs `construct`, while every tensor that it makes in this thread
// gets shape, dtype and autograd state, but no memory. Operations that look at values of such a
// tensor (item(), printing, data_ptr()) throw TrainError kBadInput, naming the operation. One
// recording at a time in a thread.
InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct);

}  // namespace dslaunch
