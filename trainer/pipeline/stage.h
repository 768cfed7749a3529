// The layers of a pipeline that one rank holds.
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
  size_t index = 0;  // position among all layers of the model
  std::string name;  // shown in messages: "layer 3 (torch::nn::LinearImpl)", "transformer.h.3"
  std::function<Tensors(const Tensors& inputs)> forward;
};

struct StageParts {
  // Holds the parameters and buffers of this stage's layers and no others, by their names in the
  // whole model. A PipelineModule names them like torch::nn::Sequential, "0.weight", and tied
  // layers by the first of them. Set evaluation or training mode on this module.
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::vector<StageLayer>> chunks;  // at least one layer each
  ModelCut cut;                                 // names are those in `module`
  std::optional<InitRecording> deferred;        // the recording of `module` if it has no memory yet
  // A description of each part of the model, for messages. Part p is chunk p / stages of stage
  // p % stages.
  std::vector<std::string> parts;  // "layers 0 to 3, 1.2 M parameters"
};

// Builds the layers of `stage` only. For partition "parameters" the others are constructed too, one
// at a time and without memory, to count their parameters. Layer i draws its initial values from a
// generator seeded by the default one's seed and i, or by 1234 + i (config.seed_layers), so they
// are the same for every cut; the default generator is not changed. `config` has the stages and the
// partition of `module`. `costs`: LayerInfo::cost of each layer, the same on all ranks; only
// partition "profile" needs them. Throws like CutLayers.
StageParts BuildStage(const PipelineModule& module, const PipelineConfig& config, int stage,
                      const std::vector<double>& costs = {});

// Returns the part of `model` that `stage` needs. `model` was constructed under `deferred`. Tensors
// that this stage does not read are not in the result's module and never get memory; the result
// keeps `model` alive, because its layers refer to it. Throws TrainError kBadInput if the model
// cannot be cut because Model::Layers is empty or leaves out a parameter, and like CutLayers.
StageParts CutModel(std::shared_ptr<Model> model, InitRecording deferred,
                    const PipelineConfig& config, int stage, const std::vector<double>& costs = {});

// Returns, for each layer, the seconds of a forward and a backward pass on `device` with the inputs
// `sample`: the shortest of a few runs. Builds one layer at a time. Ranks measure different times,
// so all must divide the model by the times of one rank.
std::vector<double> ProfileLayers(const PipelineModule& module, const Tensors& sample,
                                  c10::Device device = c10::kCPU);
// Profiles the layers of a model that was constructed under `deferred`. A layer has memory, with
// arbitrary values, only while it runs.
std::vector<double> ProfileLayers(std::shared_ptr<Model> model, const InitRecording& deferred,
                                  const at::Tensor& sample, c10::Device device = c10::kCPU);

}  // namespace dslaunch
