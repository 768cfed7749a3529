// Defines the interface of exchanges that do not send every gradient in every step. Every rank
// holds the whole model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/optim/rank_tensor.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {

// Combines gradients or weights of the ranks. Not thread-safe. Reduce, EndStep and Restart are
// collective over the group, which must outlive this object.
class GradientExchange {
 public:
  // Stores the group and the buffers. EndStep copies rank 0's values of `buffers` to all ranks
  // whenever it exchanges something.
  GradientExchange(const ProcessGroup& group, std::vector<at::Tensor> buffers)
      : group_(group), buffers_(std::move(buffers)) {}
  virtual ~GradientExchange() = default;

  // Replaces this rank's gradients of all parameters with the combined gradients of all ranks, or
  // keeps them (gradients_are_own). Called after the last backward pass of a step.
  virtual void Reduce(const std::vector<at::Tensor>& gradients) = 0;
  // Ends a step after its update, and may exchange weights and buffers. Returns whether the weights
  // were changed.
  virtual bool EndStep() {
    ++steps_;
    BroadcastFromRank0(group_, buffers_);
    return false;
  }

  // Returns whether the last Reduce kept this rank's own gradients.
  virtual bool gradients_are_own() const { return false; }
  // Returns whether the ranks' weights may differ after a step.
  virtual bool weights_differ() const { return false; }

  // Returns the tensors, other than weights, whose values are kept between steps.
  virtual std::vector<RankTensor> RankTensors() const { return {}; }
  // Resets the tensors of RankTensors() to the values of a new run that starts with rank 0's
  // weights.
  virtual void Restart() {}
  void SetSteps(int64_t steps) { steps_ = steps; }  // sets the number of completed steps

 protected:
  const ProcessGroup& group_;
  const std::vector<at::Tensor> buffers_;
  int64_t steps_ = 0;
};

}  // namespace dslaunch
