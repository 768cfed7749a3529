// Builds the layers of a pipeline that one rank holds.
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
  size_t index = 0;  // position of the layer among all layers of the model
  std::string name;  // layer's name in messages, such as "layer 3 (torch::nn::LinearImpl)"
  std::function<Tensors(const Tensors& inputs)> forward;
};

struct StageParts {
  // Module with exactly the parameters and buffers of this stage's layers, under their names in the
  // whole model. A PipelineModule names them like torch::nn::Sequential ("0.weight"), and tied
  // layers by the first of them. Set evaluation or training mode on this module.
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::vector<StageLayer>> chunks;  // layers of each chunk; at least one chunk
  ModelCut cut;  // cut of the model's parameters, by their names in `module`
  // Recording of the construction of `module`; nullopt if `module` has memory.
  std::optional<InitRecording> deferred;
  // Descriptions of the parts of the whole model, for messages. Part p is chunk p / stages of stage
  // p % stages.
  std::vector<std::string> parts;  // descriptions such as "layers 0 to 3, 1.2 M parameters"
};

// Builds only the layers of `stage`. For the partitions "parameters" and "best" all layers are
// constructed once without allocating memory, one at a time, to count their parameters. Layer i
// draws its initial values from a generator seeded by the default generator's seed and i, or by
// 1234 + i (config.seed_layers), so the values are equal for every cut. The default generator is
// not changed. `config` has the stages and the partition of `module`. `costs` has LayerInfo::cost
// of each layer, equal on all ranks; only partition "profile" needs it. Throws TrainError kBadInput
// if the layers cannot be divided into the stages.
StageParts BuildStage(const PipelineModule& module, const PipelineConfig& config, int stage,
                      const std::vector<double>& costs = {});

// Returns the part of `model` that `stage` needs. `model` was constructed under `deferred`. Tensors
// that this stage does not read are not in the result's module and never get memory. The result
// keeps `model` alive, because its layers refer to the model. Throws TrainError kBadInput if
// Model::Layers is empty or omits a parameter, or if the layers cannot be divided into the stages.
StageParts CutModel(std::shared_ptr<Model> model, InitRecording deferred,
                    const PipelineConfig& config, int stage, const std::vector<double>& costs = {});

// Returns, for each layer, the seconds of a forward and a backward pass on `device`, which is the
// shortest time of a few runs. `sample` is the first layer's inputs. Builds one layer at a time.
// Ranks measure different times, so all ranks must cut the model by the times of one rank.
std::vector<double> ProfileLayers(const PipelineModule& module, const Tensors& sample,
                                  c10::Device device = c10::kCPU);
// Profiles the layers of a model that was constructed under `deferred`. A layer has memory, with
// arbitrary values, only while it runs.
std::vector<double> ProfileLayers(std::shared_ptr<Model> model, const InitRecording& deferred,
                                  const at::Tensor& sample, c10::Device device = c10::kCPU);

}  // namespace dslaunch
