// How a model is cut over the pipeline and tensor axes of a mesh, as one stage sees it. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dslaunch/shard.h"
#include "trainer/mesh/mesh.h"

namespace dslaunch {

// A parameter or a buffer that layers of several stages read.
struct TiedTensor {
  std::string name;         // module path, the same on all these stages
  std::vector<int> stages;  // ascending, all that hold it
};

struct ModelCut {
  // Tensors that this stage shares with others, in orders that all stages agree on.
  std::vector<TiedTensor> tied = {};  // parameters
  std::vector<TiedTensor> tied_buffers = {};
  // The parameters of this stage that are cut over the tensor axis, by name. All others are the
  // same on every rank of that axis.
  std::map<std::string, ParameterCut> divided = {};

  // Returns whether norms count and checkpoints hold the part that the rank at `place` has of this
  // stage's parameter or buffer, as far as the pipeline and tensor axes decide it. Of a tied tensor
  // the first stage's copy counts, of a whole tensor the copy of part 0, of a divided tensor every
  // part except copies.
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
