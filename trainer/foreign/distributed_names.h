// Classifies the tensors of a PyTorch distributed checkpoint by their keys: weights, optimizer
// state or others. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

struct DistributedKey {
  std::string key;
  size_t outer_bytes = 0;  // size of the outer dicts' names in `key`, with their dots
  bool is_tensor = true;
};

struct DistributedNames {
  // Name of each key's tensor in the manifest ("fc1.weight", "optimizer/exp_avg/fc1.weight"); empty
  // if the key is not read as a tensor.
  std::vector<std::string> names;
  std::vector<size_t> updates;  // indices of the keys that hold a parameter's number of updates
  std::optional<size_t> step;   // index of the key that holds the run's step
  std::vector<std::string> notes;
};

// Classifies `keys`. Weights are the tensors whose key begins with `prefix`, which is removed from
// their names. If `prefix` is empty, it is the first of "model.", "app.model." and "" that some
// tensor has before the last key of its nested dicts; if none of these occurs, it is the only
// prefix that tensors have. The optimizer's state is at "optim.state.NAME.KIND" or
// "optimizer.state.NAME.KIND", also within other dicts. The state of unknown parameters is not
// read. Throws kBadInput, naming `source`, if `prefix` is empty and cannot be determined, or if
// there are no weights.
DistributedNames NamesOf(const std::vector<DistributedKey>& keys, const std::string& prefix,
                         const std::string& source);

}  // namespace dslaunch
