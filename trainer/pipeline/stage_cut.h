// Which layers of a pipeline are on which stage, and how messages name them. Pure.
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
  // `costs` of each layer (LayerInfo); may be empty but for partition "profile". Throws as
  // CutLayers does.
  StageCut(std::vector<LayerInfo> layers, const std::vector<double>& costs, int64_t stages,
           int64_t virtual_stages, const std::string& partition);

  size_t parts() const { return bounds_.size() - 1; }
  size_t chunks() const { return parts() / stages_; }  // of each stage
  // The first layer and the one after the last.
  std::pair<size_t, size_t> Part(size_t part) const { return {bounds_[part], bounds_[part + 1]}; }
  std::pair<size_t, size_t> Chunk(int stage, size_t chunk) const;
  int StageOf(size_t layer) const;
  std::vector<size_t> LayersOf(int stage) const;  // by chunk, ascending

  // "layers 0 to 3, 1.2 M parameters" of each part. `parameters` of each; empty: not known.
  std::vector<std::string> PartTexts(const std::vector<double>& parameters) const;

 private:
  size_t stages_;
  std::vector<size_t> bounds_;
};

}  // namespace dslaunch
