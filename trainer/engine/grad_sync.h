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
  bool overlap = true;
  int64_t bucket_bytes = 25 << 20;  // of one message between the ranks
};

// Calls of one micro-batch: BeforeForward, the forward pass, AfterForward, the backward pass. With
// `sync`, Gradients() are those of all ranks together when backward returns; without, they stay
// local and accumulate. Every rank must pass the same `sync`. After construction all ranks hold
// rank 0's parameters and buffers. One thread.
class GradSync {
 public:
  virtual ~GradSync() = default;
  virtual void BeforeForward(bool sync) = 0;
  virtual void AfterForward(bool sync) = 0;

  // After a backward pass with `sync`: of each parameter, in the order they were given, in
  // accumulation_dtype. Undefined for a parameter that the output did not depend on. They may be
  // changed in place until Clear.
  virtual std::vector<at::Tensor> Gradients() = 0;
  virtual void Clear() = 0;  // the step is over

  // Bytes that gradients take at their largest, with the buckets they travel in.
  virtual int64_t bytes() const = 0;
};

// Throws TrainError on every rank, naming the parameter and a rank, where the ranks' parameters
// differ in number, name, shape or dtype.
void CheckSameOnAllRanks(const ProcessGroup& group, const std::vector<NamedTensor>& parameters);

// c10d::Reducer, where gradients accumulate in the parameters' dtype; else BucketSync, which keeps
// its own accumulators and reduces them bucket by bucket as they become complete.
std::unique_ptr<GradSync> MakeGradSync(const ProcessGroup& group,
                                       std::vector<NamedTensor> parameters,
                                       std::vector<at::Tensor> buffers,
                                       const GradSyncOptions& options);

}  // namespace dslaunch
