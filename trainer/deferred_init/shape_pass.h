// Counts the memory that a pass of a model would take, without allocating or computing.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// While it exists, operations of this thread compute nothing: their results have shape, dtype and
// autograd state but no memory, so forward and backward passes of a model of any size take
// milliseconds. The model may be one that was constructed under DeferInit. Counts what LibTorch's
// CPU allocator would allocate, less what is freed; memory within a kernel is not counted. (For an
// operation without a shape function in LibTorch, the shapes come from a run on zeros.)
//
// An operation whose result depends on values (item(), nonzero()) throws TrainError kBadInput,
// naming it. Must not be used while DeferInit records, or another ShapePass exists, in the same
// thread.
class ShapePass {
 public:
  ShapePass();
  ~ShapePass();
  ShapePass(const ShapePass&) = delete;
  ShapePass& operator=(const ShapePass&) = delete;

  int64_t live_bytes() const;  // current number of bytes
  int64_t peak_bytes() const;  // maximum since construction or ResetPeak
  void ResetPeak();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
