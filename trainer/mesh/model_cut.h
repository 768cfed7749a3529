// Describes how a model is cut over the pipeline and tensor axes of a mesh, as seen by one stage.
// Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dslaunch/shard.h"
#include "trainer/mesh/mesh.h"

namespace dslaunch {

// A parameter or buffer that layers of several stages use.
struct TiedTensor {
  std::string name;         // module path of the tensor, equal on all its stages
  std::vector<int> stages;  // all stages that hold the tensor, ascending
};

struct ModelCut {
  // The parameters and buffers that this stage shares with other stages, in an order on which all
  // stages agree.
  std::vector<TiedTensor> tied = {};  // parameters that several stages share
  std::vector<TiedTensor> tied_buffers = {};
  // The parameters of this stage that are cut over the tensor axis, by name. All other parameters
  // are equal on every rank of that axis.
  std::map<std::string, ParameterCut> divided = {};

  // Returns whether the rank at `place` includes this stage's parameter or buffer `name` in norms
  // and checkpoints, as far as the pipeline and tensor axes decide it. A tied tensor counts on its
  // first stage, a whole tensor on part 0, and a divided tensor on every part except copies.
  bool Counts(const std::string& name, const MeshPlace& place) const {
    const auto cut = divided.find(name);
    if (cut == divided.end() ? place.part > 0 : cut->second.is_copy) return false;
    const auto is_elsewhere = [&](const TiedTensor& tensor) {
      return tensor.name == name && tensor.stages.front() != place.stage;
    };
    return std::ranges::none_of(tied, is_elsewhere) &&
           std::ranges::none_of(tied_buffers, is_elsewhere);
  }
};

}  // namespace dslaunch
