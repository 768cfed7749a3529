// Counts what a pass of a model would hold in memory, without the memory and without computing.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// While it lives, no operation of this thread computes anything: its results have shape, dtype and
// autograd state and no memory, so forward and backward passes of a model of any size take
// milliseconds. The model may be one that was constructed under DeferInit. Counted is what
// operations allocate, as LibTorch's CPU allocator would see it, less what has been freed; memory
// within a kernel is not. (Of an operation that LibTorch has no shape function for, the shapes
// come from a run on zeros.)
//
// An operation whose result depends on values (item(), nonzero()) throws TrainError kBadInput,
// naming it. Not while DeferInit records in the same thread, nor is another one.
class ShapePass {
 public:
  ShapePass();
  ~ShapePass();
  ShapePass(const ShapePass&) = delete;
  ShapePass& operator=(const ShapePass&) = delete;

  int64_t live_bytes() const;  // at present
  int64_t peak_bytes() const;  // the most since it was made, or since ResetPeak
  void ResetPeak();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
