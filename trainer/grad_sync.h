// The one seam through which gradients of the ranks become one.
#pragma once

#include <memory>
#include <vector>

#include "trainer/comm/process_group.h"
#include "trainer/named_tensor.h"

namespace dslaunch {

// Calls of one micro-batch: BeforeForward, the forward pass, AfterForward, the backward pass. With
// `sync`, the gradients are the average over all ranks when backward returns; without, they stay
// local and accumulate. Every rank must pass the same `sync`. After construction all ranks hold
// rank 0's parameters and buffers.
class GradSync {
 public:
  virtual ~GradSync() = default;
  virtual void BeforeForward(bool sync) = 0;
  virtual void AfterForward(bool sync) = 0;
};

// c10d::Reducer: all-reduce of whole gradients in the parameters' dtype, in buckets that overlap
// with backward. Throws where the ranks' parameters differ in number, shape or dtype.
std::unique_ptr<GradSync> MakeReducerSync(const ProcessGroup& group,
                                          std::vector<NamedTensor> parameters,
                                          std::vector<at::Tensor> buffers);

}  // namespace dslaunch
