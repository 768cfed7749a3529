// The interface of exchanges that send less than every gradient of every step. All ranks hold whole
// models.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/optim/rank_tensor.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {

// One thread. Reduce, EndStep and Restart are collective over the group, which must outlive this.
class GradientExchange {
 public:
  // `buffers` become rank 0's on all ranks whenever EndStep exchanges something.
  GradientExchange(const ProcessGroup& group, std::vector<at::Tensor> buffers)
      : group_(group), buffers_(std::move(buffers)) {}
  virtual ~GradientExchange() = default;

  // Called after the last backward pass of a step with this rank's gradients of all parameters.
  // Replaces them with the combined gradients of all ranks, or keeps them (gradients_are_own).
  virtual void Reduce(const std::vector<at::Tensor>& gradients) = 0;
  // Ends a step after its update. Returns whether it has changed the weights.
  virtual bool EndStep() {
    ++steps_;
    BroadcastFromRank0(group_, buffers_);
    return false;
  }

  // Whether the last Reduce left the gradients as this rank's own.
  virtual bool gradients_are_own() const { return false; }
  // Whether weights of the ranks differ after some of the steps.
  virtual bool weights_differ() const { return false; }

  // Returns the tensors that are kept from step to step besides weights.
  virtual std::vector<RankTensor> RankTensors() const { return {}; }
  // Resets the tensors of RankTensors() to the values of a new run that starts with rank 0's
  // weights.
  virtual void Restart() {}
  void SetSteps(int64_t steps) { steps_ = steps; }  // number of completed steps

 protected:
  const ProcessGroup& group_;
  const std::vector<at::Tensor> buffers_;
  int64_t steps_ = 0;
};

}  // namespace dslaunch
