// Assigns the layers of a pipeline to stages, and names layers in messages. Performs no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/pipeline/partition.h"

namespace dslaunch {

// Returns a layer's name in messages, such as "layer 3 (torch::nn::LinearImpl)".
std::string LayerText(size_t index, const std::string& type);
// Returns a layer's name in messages, such as "stage 1, layer 3 (torch::nn::LinearImpl)".
std::string StageLayerText(int stage, size_t index, const std::string& type);

// Divides layers into parts, one for each chunk. Part p is chunk p / stages of stage p % stages.
class StageCut {
 public:
  // Cuts the layers. `costs` has LayerInfo::cost of each layer, or is empty; only partition
  // "profile" needs it. Throws TrainError kBadInput if the layers cannot be divided into that many
  // parts or `partition` is unknown.
  StageCut(std::vector<LayerInfo> layers, const std::vector<double>& costs, int64_t stages,
           int64_t virtual_stages, const std::string& partition);

  size_t parts() const { return bounds_.size() - 1; }
  size_t chunks() const { return parts() / stages_; }  // number of chunks in each stage
  // Returns the bounds of a part: the first layer and one past the last layer.
  std::pair<size_t, size_t> Part(size_t part) const { return {bounds_[part], bounds_[part + 1]}; }
  // Returns the bounds of a stage's chunk, like Part.
  std::pair<size_t, size_t> Chunk(int stage, size_t chunk) const;
  int StageOf(size_t layer) const;
  // Returns the indices of the layers in all chunks of a stage, ascending.
  std::vector<size_t> LayersOf(int stage) const;

  // Returns a text for each part, such as "layers 0 to 3, 1.2 M parameters". `parameters` has the
  // number of parameters of each part, or is empty if unknown.
  std::vector<std::string> PartTexts(const std::vector<double>& parameters) const;

 private:
  size_t stages_;
  std::vector<size_t> bounds_;
};

}  // namespace dslaunch
