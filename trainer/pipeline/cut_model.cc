#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/pipeline/layer_run.h"
#include "trainer/pipeline/model_part.h"
#include "trainer/pipeline/stage.h"
#include "trainer/pipeline/stage_cut.h"

namespace dslaunch {
namespace {

std::vector<LayerInfo> InfoOf(const std::vector<ModelLayer>& layers,
                              const std::vector<LayerReads>& reads, const Model& model) {
  std::vector<LayerInfo> info;
  for (size_t i = 0; i < layers.size(); ++i) {
    double elements = 0;
    for (const NamedTensor& item : Unique(model.named_parameters())) {
      if (reads[i].Has(item.tensor)) elements += static_cast<double>(item.tensor.numel());
    }
    info.push_back(
        {.name = LayerText(i, layers[i].name), .type = layers[i].name, .parameters = elements});
  }
  return info;
}

}  // namespace

StageParts CutModel(std::shared_ptr<Model> model, InitRecording deferred,
                    const PipelineConfig& config, int stage, const std::vector<double>& costs) {
  const std::vector<ModelLayer> layers = model->Layers();
  if (layers.empty()) {
    throw TrainError(ExitCode::kBadInput,
                     "the model cannot be cut into pipeline stages, because it does not list "
                     "its layers; implement Layers() (dslaunch/model.h), or leave out pipeline");
  }
  const std::vector<LayerReads> reads = ReadsOf(layers, *model);
  const StageCut cut(InfoOf(layers, reads, *model), costs, config.stages, config.virtual_stages,
                     config.partition);
  std::vector<LayerReads> part_reads(cut.parts());
  for (size_t part = 0; part < cut.parts(); ++part) {
    const auto [begin, end] = cut.Part(part);
    for (size_t i = begin; i < end; ++i) part_reads[part].Add(reads[i]);
  }

  StageParts parts;
  LayerReads own;
  for (size_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    std::vector<StageLayer>& own_layers = parts.chunks.emplace_back();
    const auto [begin, end] = cut.Chunk(stage, chunk);
    for (size_t i = begin; i < end; ++i) {
      own.Add(reads[i]);
      own_layers.push_back({i, layers[i].name,
                            ForwardOf(layers[i], model, StageLayerText(stage, i, layers[i].name))});
    }
  }
  parts.module = std::make_shared<ModelPart>(model, own);
  std::vector<double> counts(cut.parts(), 0.0);
  for (const NamedTensor& item : Unique(model->named_parameters())) {
    for (size_t part = 0; part < cut.parts(); ++part) {
      if (part_reads[part].Has(item.tensor))
        counts[part] += static_cast<double>(item.tensor.numel());
    }
  }
  const auto tied = [&](const std::vector<NamedTensor>& items) {
    std::vector<TiedTensor> several;
    for (const NamedTensor& item : items) {
      std::set<int> stages;
      for (size_t part = 0; part < cut.parts(); ++part) {
        if (part_reads[part].Has(item.tensor)) stages.insert(cut.StageOf(cut.Part(part).first));
      }
      if (stages.size() > 1 && stages.contains(stage)) {
        several.push_back({item.name, {stages.begin(), stages.end()}});
      }
    }
    return several;
  };
  parts.cut.tied = tied(Unique(model->named_parameters()));
  parts.cut.tied_buffers = tied(Unique(model->named_buffers()));
  parts.cut.divided = CutsIn(*model);
  const std::vector<NamedTensor> here = Unique(parts.module->named_parameters());
  std::erase_if(parts.cut.divided, [&](const auto& cut_parameter) {
    return std::ranges::find(here, cut_parameter.first, &NamedTensor::name) == here.end();
  });
  parts.deferred = std::move(deferred);
  parts.parts = cut.PartTexts(counts);
  return parts;
}

}  // namespace dslaunch
