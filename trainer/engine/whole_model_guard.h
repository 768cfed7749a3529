// Detects programs whose ranks hold different parts of a model (tensor parallelism) without
// declaring them to the engine. Such programs would fail, because an engine gives all replicas the
// same parameters. They are recognized by the exchanges in their passes.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/comm/exchange_watch.h"

namespace dslaunch {

// Checks the exchanges in the passes of a program. Not thread-safe.
class WholeModelGuard {
 public:
  // Records the values of the module's parameters, so it must be constructed before the ranks get
  // rank 0's values. The engine gives `replicas` the same parameters. `tensor` are the ranks that
  // hold the other parts of this rank's parameters, or null. Both must outlive this object.
  // `has_values` is false for a deferred module.
  WholeModelGuard(const ProcessGroup& replicas, const ProcessGroup* tensor,
                  const torch::nn::Module& module, bool has_values);

  // Returns a watch. While the watch exists, an exchange by this thread in a group that is not part
  // of `tensor` throws TrainError kBadInput, naming the ranks, if it is
  // - in a group with ranks that are not replicas,
  // - in a group of some of the replicas,
  // - in a forward pass, in a group of all replicas, and the replicas had different values of the
  //   module's parameters at construction (compared by a collective at the first such exchange).
  ExchangeWatch Watch(bool forward);

 private:
  void Check(const ProcessGroup& group, bool collective, bool forward);
  void CheckValues();

  const ProcessGroup& replicas_;
  const ProcessGroup* const tensor_;
  std::vector<std::string> names_;
  std::vector<int64_t> values_;  // digest of the first elements of each parameter
  bool values_are_compared_ = false;
};

}  // namespace dslaunch
