// Where a row of layers is cut into parts. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch {

struct LayerInfo {
  std::string name;  // for messages
  std::string type;
  double parameters = 0;  // elements
  double cost = 0;        // "profile": measured seconds; "best": operations, 0 of all: not known
};

// parts + 1 bounds: part p is layers [bounds[p], bounds[p + 1]). The largest part is as small as it
// can be, by the measure that `method` names (pipeline_config.h); of cuts that are as good, that
// with the most even rest. No part is empty. Throws TrainError kBadInput, naming layers and stages,
// where there are fewer layers than parts, or of `type:REGEX` fewer that match, or `method` is
// none.
std::vector<size_t> CutLayers(const std::vector<LayerInfo>& layers, size_t parts,
                              const std::string& method);

}  // namespace dslaunch
