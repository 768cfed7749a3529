// Cuts a row of layers into consecutive parts. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch {

struct LayerInfo {
  std::string name;  // shown in messages
  std::string type;
  double parameters = 0;  // elements
  double cost = 0;        // "profile": measured seconds; "best": operations, all 0 if not known
};

// Returns parts + 1 bounds: part p is layers [bounds[p], bounds[p + 1]). Minimizes the largest
// part, by the measure that `method` names (PipelineConfig::partition), then the sum of the parts'
// squares. No part is empty. Throws TrainError kBadInput, naming layers and stages, if there are
// fewer layers than parts, if fewer match `type:REGEX`, or if `method` is unknown.
std::vector<size_t> CutLayers(const std::vector<LayerInfo>& layers, size_t parts,
                              const std::string& method);

}  // namespace dslaunch
