// The one seam through which gradients of the ranks become one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

struct GradSyncOptions {
  // Gradients add up over micro-batches in this dtype, and are handed over in it.
  at::ScalarType accumulation_dtype = at::kFloat;
  at::ScalarType communication_dtype = at::kFloat;
  bool prescale = false;  // as in CommunicationConfig
  double predivide_factor = 1.0;
  bool sum = false;
  // Without, no message leaves before the last gradient of a backward pass is there.
  bool overlap = true;
  int64_t bucket_bytes = 25 << 20;  // of one message between the ranks, about
  // From Begin to End there may be any number of backward passes, and gradients that come without
  // one; else there is one, which is the last exactly where it is to be synchronised.
  bool batches = false;
};

// Calls of one pass: Begin; forward passes and, each between BeforeBackward and AfterBackward,
// backward passes; End. With `sync`, Gradients() are those of all ranks together after End;
// without, they stay local and accumulate. Every rank must pass the same `sync`, and call Clear
// after it.
//
// After construction and after each Clear all ranks hold rank 0's buffers (running means of a batch
// norm), after construction also its parameters. PyTorch does the same before the next forward
// pass; here an evaluation, or a comparison of the ranks, sees it too.
//
// A parameter that got no gradient on this rank in the last backward pass is undefined in
// Gradients(): the gradients of the others may then still be this rank's own, and the other ranks
// wait for it, until this rank ends or kCollectiveTimeout has passed.
// Two gradients of one parameter in the last backward pass, or one after it, throw TrainError out
// of that pass. One thread.
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
  // accumulation_dtype. Undefined for a parameter that got none in the last backward pass, even
  // where it did in an earlier one, or where none was the last, in all of them. They may be changed
  // in place until Clear.
  virtual std::vector<at::Tensor> Gradients() = 0;
  virtual void Clear() = 0;  // the step is over, on all ranks

  // What accumulated gradients take at their largest, and what they travel in beside that.
  virtual int64_t gradient_bytes() const = 0;
  virtual int64_t bucket_bytes() const = 0;
};

// Throws TrainError kBadInput on every rank, naming the first that differs and what each rank has,
// where the ranks' tensors differ in number, name, dtype, shape or in whether they require a
// gradient. Values are not compared.
void CheckSameOnAllRanks(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

// CheckSameOnAllRanks for a model of these parameters, which are trained, and buffers. Throws also
// where there are no parameters, unless it `may_be_empty`.
void CheckSameModel(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                    const std::vector<at::Tensor>& buffers, bool may_be_empty);

// Gives all ranks rank 0's values. The ranks' tensors must be the same but for these.
void BroadcastFromRank0(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

// `parameters` are those that are trained. Throws as CheckSameOnAllRanks does, or, but for batches,
// where there are none. `group` must outlive the result.
//
// c10d::Reducer, where gradients accumulate in the parameters' dtype, but not for batches: it
// reduces only what one backward pass has. Else BucketSync, which keeps its own accumulators and
// reduces them bucket by bucket.
std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers,
                                       const GradSyncOptions& options);

}  // namespace dslaunch
