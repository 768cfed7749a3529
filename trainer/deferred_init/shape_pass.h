// Counts the memory that a pass of a model would need, without allocating memory or computing.
#pragma once

#include <cstdint>
#include <memory>

namespace dslaunch {

// Makes operations of this thread compute nothing while this object exists. Their results have
// shape, dtype and autograd state, but no memory, so forward and backward passes of a model of any
// size take milliseconds. The model may have been constructed under DeferInit. Counts the bytes
// that LibTorch's CPU allocator would allocate, minus the bytes that would be freed; memory within
// a kernel is not counted. (If LibTorch has no shape function for an operation, the shapes come
// from a run on zeros.)
//
// An operation whose result depends on values, such as item() or nonzero(), throws TrainError
// kBadInput, naming the operation. Precondition: in this thread, DeferInit is not recording and no
// other ShapePass exists.
class ShapePass {
 public:
  ShapePass();
  ~ShapePass();
  ShapePass(const ShapePass&) = delete;
  ShapePass& operator=(const ShapePass&) = delete;

  int64_t live_bytes() const;  // number of bytes that are in use
  // Returns the maximum of live_bytes() since construction or the last ResetPeak().
  int64_t peak_bytes() const;
  void ResetPeak();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
