// Models that are too large to be built: their parameters get no memory until each is asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace dslaunch {

// What operations a constructor ran on tensors that have no memory yet. It belongs to the thread
// that made it.
class InitRecording {
 public:
  InitRecording();
  ~InitRecording();
  InitRecording(InitRecording&&) noexcept;
  InitRecording& operator=(InitRecording&&) noexcept;

  // Whether `tensor` was made while recording and is still without memory.
  bool deferred(const at::Tensor& tensor) const;

  // Runs what was recorded, in its order, with the default generator seeded as it was when the
  // recording began: every tensor gets exactly the bits that it would have got without a recording,
  // on any number of ranks, and the generator is left as it would have been. What `wanted` does not
  // depend on is passed over, but for random numbers. `take` is called for each of `wanted`, those
  // that were not deferred first and then in the order in which they become complete, with the
  // values, which it may keep or copy from; memory that nobody keeps is freed before the next one.
  // At the end nothing is recorded any more. Throws TrainError kBadInput, naming it, for an
  // operation that fails.
  void Replay(const std::vector<at::Tensor>& wanted,
              const std::function<void(size_t index, const at::Tensor& values)>& take);

 private:
  friend InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Seeds the default generator and runs `construct`, while every tensor that it makes in this thread
// gets shape, dtype and autograd state, but no memory. They are ordinary CPU tensors, whose data is
// missing: who takes its address gets a c10::Error until set_data gives them another. Operations on
// none but tensors that have memory run at once. (Where LibTorch cannot tell the shape of a result
// without computing it, it is computed once from zeros, and forgotten.)
//
// Throws TrainError kBadInput, naming it, for an operation that cannot wait: one that looks at
// values (item(), printing, data_ptr()), draws from a generator that is not the default one or
// seeds that, changes a tensor that is older than the recording, or is for another device. Other
// exceptions are those of `construct`. One recording at a time in a thread.
InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct);

}  // namespace dslaunch
