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
  size_t outer_bytes = 0;  // size of the outer dicts' names in the key, including their dots
  bool is_tensor = true;
};

struct DistributedNames {
  // Name of each key's tensor in the manifest ("fc1.weight", "optimizer/exp_avg/fc1.weight"). A
  // name is empty if the key is not read as a tensor.
  std::vector<std::string> names;
  std::vector<size_t> updates;  // indices of the keys of parameters' numbers of updates
  std::optional<size_t> step;   // index of the key of the run's step; nullopt without a step
  std::vector<std::string> notes;
};

// Classifies `keys`. Weights are the tensors whose key begins with `prefix`, which is removed from
// their names. If `prefix` is empty, it is the first of "model.", "app.model." and "" that precedes
// the last key of some tensor's nested dicts; if none of these occurs, it is the only prefix that
// tensors have. The optimizer's state is at "optim.state.NAME.KIND" or "optimizer.state.NAME.KIND",
// also within other dicts. The state of unknown parameters is not read. Throws kBadInput, naming
// `source`, if `prefix` is empty and cannot be determined, or if there are no weights.
DistributedNames NamesOf(const std::vector<DistributedKey>& keys, const std::string& prefix,
                         const std::string& source);

}  // namespace dslaunch
