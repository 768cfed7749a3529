// Refuses programs whose ranks hold different parts of a model (tensor parallelism), because an
// engine gives all of its ranks, or all replicas of a pipeline stage, the same parameters. Such
// programs are recognized by the exchanges of their passes.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/comm/exchange_watch.h"

namespace dslaunch {

// One thread. `replicas`, which the engine gives the same parameters, must outlive this object.
class WholeModelGuard {
 public:
  // Make it before the ranks get rank 0's values. `has_values`: false for a deferred module.
  WholeModelGuard(const ProcessGroup& replicas, const torch::nn::Module& module, bool has_values);

  // While the result lives, an exchange by this thread throws TrainError kBadInput, naming the
  // ranks,
  // - in a group with ranks that are not replicas,
  // - in a group of some of the replicas,
  // - in a forward pass, in a group of all replicas, if some of them had other values of the
  //   module's parameters (compared by a collective at the first such exchange).
  ExchangeWatch Watch(bool forward);

 private:
  void Check(const ProcessGroup& group, bool collective, bool forward);
  void CheckValues();

  const ProcessGroup& replicas_;
  std::vector<std::string> names_;
  std::vector<int64_t> values_;  // a digest of each parameter's first elements
  bool values_are_compared_ = false;
};

}  // namespace dslaunch
