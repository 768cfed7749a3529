// Constructs models that do not fit in memory. Parameters get memory only when Replay computes
// their values.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace dslaunch {

// Records the operations that a constructor runs on tensors without allocated memory. Use it only
// in the thread that created it.
class InitRecording {
 public:
  InitRecording();
  ~InitRecording();
  InitRecording(InitRecording&&) noexcept;
  InitRecording& operator=(InitRecording&&) noexcept;

  // Returns whether `tensor` was created during the recording and has no memory yet.
  bool deferred(const at::Tensor& tensor) const;

  // Runs the recorded operations in order, with the default generator seeded as it was at the start
  // of the recording. Every tensor gets the same bits as without deferral, on any number of ranks,
  // and the generator ends in the same state. Operations that `wanted` does not depend on are
  // skipped, except for their random numbers. `take` is called once for each tensor of `wanted`:
  // first for the tensors that were not deferred, then for the others in the order in which they
  // are complete. `take` may keep `values` or copy from it; otherwise the memory is freed before
  // the next call. Afterwards the recording is empty. Throws TrainError kBadInput if an operation
  // fails; the message names the operation.
  void Replay(const std::vector<at::Tensor>& wanted,
              const std::function<void(size_t index, const at::Tensor& values)>& take);

 private:
  friend InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Seeds the default generator and runs `construct`. Every tensor that it makes in this thread gets
// a shape, a dtype and autograd state, but no memory. These are ordinary CPU tensors without data:
// taking their address throws c10::Error until set_data gives them data. Operations on tensors that
// all have memory run at once. (If LibTorch cannot infer the shape of a result, the operation is
// run once on zeros and its result is discarded.)
//
// Throws TrainError kBadInput, naming the operation, if an operation cannot be deferred. Such an
// operation reads values (item(), printing, data_ptr()), draws from a generator other than the
// default one, seeds the default generator, changes a tensor from before the recording, or is for
// another device. All other exceptions are passed on from `construct`. Each thread may have only
// one recording at a time.
InitRecording DeferInit(uint64_t seed, const std::function<void()>& construct);

}  // namespace dslaunch
