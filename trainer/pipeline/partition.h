// Divides a list of layers into consecutive parts. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch {

struct LayerInfo {
  std::string name;  // layer's name in messages
  std::string type;
  double parameters = 0;  // number of elements in the layer's parameters
  double cost = 0;        // seconds ("profile"), or number of operations ("best"), all 0 if unknown
};

// Returns parts + 1 bounds: part p consists of the layers [bounds[p], bounds[p + 1]). Minimizes the
// weight of the largest part, then the sum of the squared weights. `method` selects the weight
// (PipelineConfig::partition). No part is empty. Throws TrainError kBadInput, naming layers and
// stages, if there are fewer layers than parts, if fewer layers match `type:REGEX` than there are
// parts, or if `method` is unknown.
std::vector<size_t> CutLayers(const std::vector<LayerInfo>& layers, size_t parts,
                              const std::string& method);

}  // namespace dslaunch
