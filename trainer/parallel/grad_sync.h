// The one seam through which gradients of the ranks become one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

struct GradSyncOptions {
  // Gradients add up over micro-batches in this dtype, and are handed over in it; those of a
  // parameter with a wider dtype in that (AccumulationDtype).
  at::ScalarType accumulation_dtype = at::kFloat;
  at::ScalarType communication_dtype = at::kFloat;
  // Gradients of a parameter with a wider dtype than communication_dtype travel in its dtype.
  bool keeps_parameter_dtype = false;
  bool prescale = false;  // as in CommunicationConfig
  double predivide_factor = 1.0;
  bool sum = false;
  // Without, no message leaves before the last gradient of a backward pass is there.
  bool overlap = true;
  int64_t bucket_bytes = 25 << 20;  // of one message between the ranks, about
  // Whether all ranks hold rank 0's buffers; else each keeps its own.
  bool broadcast_buffers = true;
  // From Begin to End there may be any number of backward passes, and gradients that come without
  // one; else there is one, which is the last exactly where it is to be synchronised.
  bool batches = false;
  // A parameter that got no gradient on this rank counts with zeros.
  bool ignore_unused = false;
};

// The dtype in which gradients travel of a parameter that has `parameter`.
inline at::ScalarType MessageDtype(const GradSyncOptions& options, at::ScalarType parameter) {
  if (!options.keeps_parameter_dtype) return options.communication_dtype;
  return at::promote_types(options.communication_dtype, parameter);
}

// The dtype in which gradients add up of a parameter that has `parameter`.
inline at::ScalarType AccumulationDtype(const GradSyncOptions& options, at::ScalarType parameter) {
  return at::promote_types(options.accumulation_dtype, parameter);
}

// Calls of one pass: Begin; forward passes and, each between BeforeBackward and AfterBackward,
// backward passes; End. With `sync`, Gradients() are those of all ranks together after End;
// without, they stay local and accumulate. Every rank must pass the same `sync`, and call Clear
// after it.
//
// After construction and after each Clear all ranks hold rank 0's buffers (running means of a batch
// norm) unless GradSyncOptions::broadcast_buffers is false, after construction also its parameters.
// PyTorch does the same before the next forward pass; here an evaluation, or a comparison of the
// ranks, sees it too.
//
// Without `ignore_unused` a parameter that got no gradient on this rank in the last backward pass
// is undefined in Gradients(): the gradients of the others may then still be this rank's own, and
// the other ranks wait for it, until this rank ends or ProcessGroup::timeout() has passed. Two
// gradients of one parameter in the last backward pass, or one after it, throw TrainError out of
// that pass. One thread.
class GradSync {
 public:
  virtual ~GradSync() = default;
  virtual void Begin(bool sync) = 0;
  // `last`, with `sync`: nothing is added to gradients after this backward pass. They travel while
  // it goes on. Without such a one they travel in End.
  virtual void BeforeBackward(bool last) = 0;
  virtual void AfterBackward() = 0;
  virtual void End() = 0;  // waits for what travels

  // After a pass with `sync`: of each parameter, in the order they were given, in
  // AccumulationDtype. Undefined, without `ignore_unused`, for a parameter that got none in the
  // last backward pass, even where it did in an earlier one, or where none was the last, in all of
  // them. They may be changed in place until Clear.
  virtual std::vector<at::Tensor> Gradients() = 0;
  virtual void Clear() = 0;  // the step is over, on all ranks

  // As ModelStates has them.
  virtual void DropGradients() = 0;
  virtual void GiveUp() = 0;

  // What accumulated gradients take at their largest, and what they travel in beside that.
  virtual int64_t gradient_bytes() const = 0;
  virtual int64_t bucket_bytes() const = 0;
};

}  // namespace dslaunch
