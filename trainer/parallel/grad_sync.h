// Defines the interface that reduces the ranks' gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

struct GradSyncOptions {
  // The dtype in which gradients accumulate over micro-batches and in which Gradients() returns
  // them. A wider dtype of a parameter is kept (AccumulationDtype).
  at::ScalarType accumulation_dtype = at::kFloat;
  at::ScalarType communication_dtype = at::kFloat;
  // True if the gradient of a parameter with a wider dtype than communication_dtype is sent in the
  // parameter's dtype.
  bool keeps_parameter_dtype = false;
  bool prescale = false;  // see CommunicationConfig for `prescale` and the next two fields
  double predivide_factor = 1.0;
  bool sum = false;
  // True if messages are sent during the backward pass. If false, they are sent after its last
  // gradient has arrived.
  bool overlap = true;
  int64_t bucket_bytes = 25 << 20;  // approximate size of a message between the ranks, in bytes
  // True if all ranks get rank 0's buffers; otherwise each rank keeps its own buffers.
  bool broadcast_buffers = true;
  // True if there may be any number of backward passes between Begin and End, and gradients outside
  // of them. False if there is exactly one backward pass, which is `last` if and only if Begin had
  // `sync`.
  bool batches = false;
  // True if a parameter without a gradient on this rank contributes zeros to the sum.
  bool ignore_unused = false;
  // True if the group's DesyncDetector must record every wait for other ranks.
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

// Reduces the gradients of a pass over the ranks. The calls of a pass are Begin; forward passes and
// backward passes, each of the latter between BeforeBackward and AfterBackward; End. With `sync`,
// Gradients() after End are reduced over all ranks; without `sync`, they stay local and accumulate.
// Every rank must pass the same `sync`, and call Clear after a pass with `sync`.
//
// After construction all ranks hold rank 0's parameters. After construction and after each Clear
// they also hold rank 0's buffers (running means of a batch norm), unless
// GradSyncOptions::broadcast_buffers is false. PyTorch copies buffers only before the next forward
// pass; copying them in Clear makes them equal in an evaluation or a comparison of the ranks too.
//
// Without `ignore_unused` a parameter that got no gradient on this rank in the last backward pass
// is undefined in Gradients(). The gradients of the other parameters may then still be local, and
// the other ranks wait for the missing gradient until this rank exits or ProcessGroup::timeout()
// has passed. A second gradient of a parameter in the last backward pass, or any gradient after
// that pass, throws TrainError out of the backward pass. Not thread-safe.
class GradSync {
 public:
  virtual ~GradSync() = default;
  virtual void Begin(bool sync) = 0;
  // Begins a backward pass. `last`, allowed only with `sync`, means that gradients are complete
  // after this backward pass, so they are sent while it runs. If no backward pass is the last, End
  // sends the gradients.
  virtual void BeforeBackward(bool last) = 0;
  virtual void AfterBackward() = 0;
  virtual void End() = 0;  // waits until all messages are complete

  // Returns the gradient of each parameter after a pass with `sync`, in AccumulationDtype, in the
  // order of the parameters. Without `ignore_unused` a gradient is undefined if the parameter got
  // none in the last backward pass, even if it got one earlier. If no backward pass was the last,
  // the gradient is undefined if the parameter got none in any backward pass. The gradients may be
  // changed in place until Clear.
  virtual std::vector<at::Tensor> Gradients() = 0;
  virtual void Clear() = 0;  // ends the step; called on all ranks

  // Drops the gradients of this step so far. Does not end an open pass. Precondition: no backward
  // pass is running.
  virtual void DropGradients() = 0;
  // Ends the open pass, even during a backward pass, and drops the gradients of this step. See
  // ModelStates::GiveUp for gradients that have already been sent.
  virtual void GiveUp() = 0;

  // Returns the peak size of the accumulated gradients in bytes.
  virtual int64_t gradient_bytes() const = 0;
  // Returns the peak size in bytes of the buffers for messages, without the accumulated gradients.
  virtual int64_t bucket_bytes() const = 0;
};

}  // namespace dslaunch
