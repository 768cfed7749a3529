// The interface through which the ranks' gradients are reduced.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

struct GradSyncOptions {
  // The dtype in which gradients add up over micro-batches and Gradients() returns them; a
  // parameter with a wider dtype keeps its own (AccumulationDtype).
  at::ScalarType accumulation_dtype = at::kFloat;
  at::ScalarType communication_dtype = at::kFloat;
  // Whether gradients of a parameter with a wider dtype than communication_dtype are sent in its
  // own.
  bool keeps_parameter_dtype = false;
  bool prescale = false;  // this and the next two: see CommunicationConfig
  double predivide_factor = 1.0;
  bool sum = false;
  // False: no message is sent before the last gradient of a backward pass has arrived.
  bool overlap = true;
  int64_t bucket_bytes = 25 << 20;  // approximate size of a message between the ranks
  // Whether all ranks get rank 0's buffers; otherwise each keeps its own.
  bool broadcast_buffers = true;
  // True: there may be any number of backward passes from Begin to End, and gradients outside of
  // them. False: there is one, which is `last` if and only if the pass is with `sync`.
  bool batches = false;
  // Whether a parameter that got no gradient on this rank counts with zeros.
  bool ignore_unused = false;
  // Whether every wait for other ranks must be known to the group's DesyncDetector.
  bool reports_waits = false;
};

// Returns the dtype in which gradients of a parameter of dtype `parameter` are sent.
inline at::ScalarType MessageDtype(const GradSyncOptions& options, at::ScalarType parameter) {
  if (!options.keeps_parameter_dtype) return options.communication_dtype;
  return at::promote_types(options.communication_dtype, parameter);
}

// Returns the dtype in which gradients of a parameter of dtype `parameter` add up.
inline at::ScalarType AccumulationDtype(const GradSyncOptions& options, at::ScalarType parameter) {
  return at::promote_types(options.accumulation_dtype, parameter);
}

// Calls of one pass: Begin; forward passes and, each between BeforeBackward and AfterBackward,
// backward passes; End. With `sync`, Gradients() after End are reduced over all ranks; without,
// they stay local and accumulate. Every rank must pass the same `sync`, and call Clear after a pass
// with it.
//
// After construction and after each Clear all ranks hold rank 0's buffers (running means of a batch
// norm) unless GradSyncOptions::broadcast_buffers is false, after construction also its parameters.
// PyTorch copies buffers before the next forward pass; here an evaluation, or a comparison of the
// ranks, sees equal buffers too.
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
  // `last`, with `sync`: nothing is added to gradients after this backward pass. They are sent
  // while it runs; if no backward pass is the last, in End.
  virtual void BeforeBackward(bool last) = 0;
  virtual void AfterBackward() = 0;
  virtual void End() = 0;  // waits for all messages

  // After a pass with `sync`: the gradient of each parameter, in their order, in AccumulationDtype.
  // Without `ignore_unused` it is undefined for a parameter that got none in the last backward
  // pass, even if it did in an earlier one; if no pass was the last, for one that got none in any.
  // They may be changed in place until Clear.
  virtual std::vector<at::Tensor> Gradients() = 0;
  virtual void Clear() = 0;  // the step is over, on all ranks

  // See ModelStates.
  virtual void DropGradients() = 0;
  virtual void GiveUp() = 0;

  // Bytes of accumulated gradients at their largest, and of the buffers for messages besides.
  virtual int64_t gradient_bytes() const = 0;
  virtual int64_t bucket_bytes() const = 0;
};

}  // namespace dslaunch
