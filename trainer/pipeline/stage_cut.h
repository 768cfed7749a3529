// Assigns the layers of a pipeline to stages, and names them in messages. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/pipeline/partition.h"

namespace dslaunch {

// "layer 3 (torch::nn::LinearImpl)"
std::string LayerText(size_t index, const std::string& type);
// "stage 1, layer 3 (torch::nn::LinearImpl)"
std::string StageLayerText(int stage, size_t index, const std::string& type);

// Part p of the layers is chunk p / stages of stage p % stages.
class StageCut {
 public:
  // `costs`: LayerInfo::cost of each layer; only partition "profile" needs them. Throws like
  // CutLayers.
  StageCut(std::vector<LayerInfo> layers, const std::vector<double>& costs, int64_t stages,
           int64_t virtual_stages, const std::string& partition);

  size_t parts() const { return bounds_.size() - 1; }
  size_t chunks() const { return parts() / stages_; }  // per stage
  // Bounds of a part, and of a chunk: the first layer and the one after the last.
  std::pair<size_t, size_t> Part(size_t part) const { return {bounds_[part], bounds_[part + 1]}; }
  std::pair<size_t, size_t> Chunk(int stage, size_t chunk) const;
  int StageOf(size_t layer) const;
  std::vector<size_t> LayersOf(int stage) const;  // ascending

  // Returns "layers 0 to 3, 1.2 M parameters" for each part. `parameters` has the number of
  // parameters of each part, or is empty if these are not known.
  std::vector<std::string> PartTexts(const std::vector<double>& parameters) const;

 private:
  size_t stages_;
  std::vector<size_t> bounds_;
};

}  // namespace dslaunch
