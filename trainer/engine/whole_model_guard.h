// An engine trains a model that every one of its ranks holds whole, or a stage of it all replicas.
// A program whose ranks hold different parts of one (tensor parallelism) is noticed by what its
// passes exchange.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/comm/exchange_watch.h"

namespace dslaunch {

// One thread. `replicas`, to which the engine gives the same parameters, must outlive this.
class WholeModelGuard {
 public:
  // Before the ranks get rank 0's values. `has_values`: the module was not deferred.
  WholeModelGuard(const ProcessGroup& replicas, const torch::nn::Module& module, bool has_values);

  // While the result lives this thread's exchanges throw TrainError kBadInput, saying between which
  // ranks,
  // - in a group that has ranks which are no replicas,
  // - in a group of some of the replicas,
  // - in a forward pass, in a group of all of them, where the module's parameters had other values
  //   on some of them (a collective finds out, the first time).
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
