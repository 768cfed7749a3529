// What one rank has of a pipeline's layers.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/deferred_init.h"
#include "dslaunch/model.h"
#include "dslaunch/pipeline.h"
#include "trainer/config/pipeline_config.h"
#include "trainer/mesh/model_cut.h"

namespace dslaunch {

struct StageLayer {
  size_t index = 0;  // among all layers of the model
  std::string name;  // for messages: "layer 3 (torch::nn::LinearImpl)", "transformer.h.3"
  std::function<Tensors(const Tensors& inputs)> forward;
};

struct StageParts {
  // Holds the parameters and buffers of this stage's layers and no others, by the names that they
  // have in the whole model: of a PipelineModule those of torch::nn::Sequential, "0.weight". Tied
  // layers have the name of the first of them. Evaluation or training mode is set here.
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::vector<StageLayer>> chunks;  // each at least one layer
  ModelCut cut;                                 // names are those in `module`
  std::optional<InitRecording> deferred;        // of `module`, where it was built without memory
  // For a line that says where the model was cut: of each part of it, in their order. Part p is
  // chunk p / stages of stage p % stages.
  std::vector<std::string> parts;  // "layers 0 to 3, 1.2 M parameters"
};

// Builds this stage's layers only; those of others are constructed for partition "parameters", one
// at a time and without memory, to be counted. Layer i draws its values from a generator seeded by
// the default one's seed and i, or as config.seed_layers says, so that every cut gives the same
// values; the default generator is left as it was. `config` has what `module` says of stages and
// partition. `costs` of each layer for partition "profile" or "best" (LayerInfo), the same on all
// ranks; else it may be empty. Throws as CutLayers does.
StageParts BuildStage(const PipelineModule& module, const PipelineConfig& config, int stage,
                      const std::vector<double>& costs = {});

// `model` was constructed under `deferred`. What this stage does not read is not in the result's
// module and never gets memory, but `model` lives on, because its layers refer to it. kBadInput
// where the model cannot be cut: Model::Layers is empty, or leaves out a parameter.
StageParts CutModel(std::shared_ptr<Model> model, InitRecording deferred,
                    const PipelineConfig& config, int stage, const std::vector<double>& costs = {});

// Of each layer: seconds of a forward and a backward pass for these inputs on `device`, the least
// of a few. Builds one layer at a time. No two ranks measure the same: let all cut by one rank's
// times.
std::vector<double> ProfileLayers(const PipelineModule& module, const Tensors& sample,
                                  c10::Device device = c10::kCPU);
// Of a model that was constructed under `deferred`. While a layer runs it gets memory, with any
// values.
std::vector<double> ProfileLayers(std::shared_ptr<Model> model, const InitRecording& deferred,
                                  const at::Tensor& sample, c10::Device device = c10::kCPU);

}  // namespace dslaunch
