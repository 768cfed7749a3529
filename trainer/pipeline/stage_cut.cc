#include "trainer/pipeline/stage_cut.h"

#include <algorithm>

#include "trainer/base/format.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

std::string CountText(double count) {
  if (count >= 1e6) return Format("%.1f M", count / 1e6);
  if (count >= 1e3) return Format("%.1f k", count / 1e3);
  return Format("%.0f", count);
}

}  // namespace

std::string LayerText(size_t index, const std::string& type) {
  return "layer " + std::to_string(index) + " (" + type + ")";
}

std::string StageLayerText(int stage, size_t index, const std::string& type) {
  return "stage " + std::to_string(stage) + ", " + LayerText(index, type);
}

StageCut::StageCut(std::vector<LayerInfo> layers, const std::vector<double>& costs, int64_t stages,
                   int64_t virtual_stages, const std::string& partition)
    : stages_(static_cast<size_t>(stages)) {
  if (partition == "profile" && costs.size() != layers.size()) {
    throw TrainError(ExitCode::kInternal,
                     "internal error: partition profile without the time of each layer");
  }
  for (size_t i = 0; i < costs.size(); ++i) layers.at(i).cost = costs[i];
  bounds_ = CutLayers(layers, static_cast<size_t>(stages * virtual_stages), partition);
}

std::pair<size_t, size_t> StageCut::Chunk(int stage, size_t chunk) const {
  return Part(chunk * stages_ + static_cast<size_t>(stage));
}

int StageCut::StageOf(size_t layer) const {
  const auto after = std::upper_bound(bounds_.begin(), bounds_.end(), layer);
  return static_cast<int>(static_cast<size_t>(after - bounds_.begin() - 1) % stages_);
}

std::vector<size_t> StageCut::LayersOf(int stage) const {
  std::vector<size_t> layers;
  for (size_t chunk = 0; chunk < chunks(); ++chunk) {
    const auto [begin, end] = Chunk(stage, chunk);
    for (size_t i = begin; i < end; ++i) layers.push_back(i);
  }
  return layers;
}

std::vector<std::string> StageCut::PartTexts(const std::vector<double>& parameters) const {
  std::vector<std::string> texts;
  for (size_t part = 0; part < parts(); ++part) {
    const auto [begin, end] = Part(part);
    std::string text = end - begin == 1
                           ? "layer " + std::to_string(begin)
                           : "layers " + std::to_string(begin) + " to " + std::to_string(end - 1);
    if (!parameters.empty()) text += ", " + CountText(parameters[part]) + " parameters";
    texts.push_back(text);
  }
  return texts;
}

}  // namespace dslaunch
