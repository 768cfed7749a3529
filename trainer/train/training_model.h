// The model of a run in its engine: either whole on every rank, or cut into the stages of a
// pipeline.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/data/dataset.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/profile/phase.h"

namespace dslaunch {

// One for each rank. One thread. Every rank makes the same calls, except for Forward unless
// core().ForwardIsCollective().
class TrainingModel {
 public:
  virtual ~TrainingModel() = default;

  virtual EngineCore& core() = 0;
  const EngineCore& core() const { return const_cast<TrainingModel*>(this)->core(); }
  virtual const Model& model() const = 0;  // the model whose Loss is used
  Model& model() { return const_cast<Model&>(std::as_const(*this).model()); }
  // This rank's part of the model, with the parameters of its stage under their names in the whole
  // model.
  virtual const torch::nn::Module& module() const = 0;
  virtual int64_t total_parameters() const = 0;  // elements in the whole model
  void SetTrain(bool on) { core().SetTrain(on); }

  // The ranks among which the samples are divided. Ranks of one replica get the same samples.
  const ProcessGroup& replicas() const { return core().ranks().data(); }
  bool is_last_stage() const {
    return core().ranks().place().stage == core().ranks().mesh().pipeline - 1;
  }
  // Whether this rank is the one in its replica whose results count.
  bool counts() const { return is_last_stage() && core().ranks().place().part == 0; }

  struct Step {
    uint64_t seed = 0;  // seed of the run
    int64_t number = 0;
    StepTimes* times = nullptr;  // sums to which the step's times are added, except data time
    // Factor of the sum of a micro-batch's losses over its targets; nullopt: the mean is used
    // instead.
    std::optional<double> target_weight = {};
  };
  // Makes an optimizer step on core().accumulation_steps() micro-batches of this replica. Returns
  // their mean loss, a scalar in fp64 on the device that computed it; the mean of the results over
  // the ranks is the loss of the step.
  virtual at::Tensor Train(const Step& step, const std::function<Batch()>& next) = 0;

  // Returns the model's output in the mode that was set last, without gradients: what model().Loss
  // takes, which is a part of the output if the model is cut over the tensor axis.
  virtual at::Tensor Forward(const at::Tensor& inputs) = 0;
  // Returns the whole output for an output of Forward. Collective over the tensor axis.
  at::Tensor WholeOutput(const at::Tensor& output) const {
    return core().ranks().tensor() == nullptr ? output : model().WholeOutput(output);
  }
};

// `model` is this rank's part of a model that is not cut into stages. `ranks` has no cut yet.
// `deferred`: see Initialize.
std::unique_ptr<TrainingModel> MakeWholeTrainingModel(const EngineConfig& config,
                                                      std::shared_ptr<Model> model,
                                                      std::shared_ptr<MeshGroups> ranks,
                                                      InitRecording* deferred);

// `model` was constructed under `deferred`, and is this rank's part over the tensor axis, with all
// stages. `ranks` has no cut yet. `layer_costs`: see CutModel.
std::unique_ptr<TrainingModel> MakePipelineTrainingModel(const EngineConfig& config,
                                                         std::shared_ptr<Model> model,
                                                         InitRecording deferred,
                                                         const std::vector<double>& layer_costs,
                                                         std::shared_ptr<MeshGroups> ranks);

// Returns the number of elements of the parameters of the whole model, of which `model` may be a
// part.
int64_t CountWholeParameters(const Model& model);

}  // namespace dslaunch
