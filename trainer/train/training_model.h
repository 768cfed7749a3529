// Defines a run's model together with its engine. The model is either whole on every rank, or
// divided into the stages of a pipeline.
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

// Trains and runs this rank's part of a model. Each rank has one object, used by one thread. Every
// rank makes the same calls, except for Forward if core().ForwardIsCollective() is false.
class TrainingModel {
 public:
  virtual ~TrainingModel() = default;

  virtual EngineCore& core() = 0;
  const EngineCore& core() const { return const_cast<TrainingModel*>(this)->core(); }
  virtual const Model& model() const = 0;  // the model whose Loss is used
  Model& model() { return const_cast<Model&>(std::as_const(*this).model()); }
  // Returns this rank's part of the model. Its parameters have the names that they have in the
  // whole model.
  virtual const torch::nn::Module& module() const = 0;
  virtual int64_t total_parameters() const = 0;  // number of elements in the whole model
  void SetTrain(bool on) { core().SetTrain(on); }

  // Returns the group of ranks among which the samples are divided. Ranks of one replica get the
  // same samples.
  const ProcessGroup& replicas() const { return core().ranks().data(); }
  bool is_last_stage() const {
    return core().ranks().place().stage == core().ranks().mesh().pipeline - 1;
  }
  // Returns whether this rank's results enter the sums over ranks, which is true for one rank of
  // each replica.
  bool counts() const { return is_last_stage() && core().ranks().place().part == 0; }

  struct Step {
    uint64_t seed = 0;  // seed of the run
    int64_t number = 0;
    StepTimes* times = nullptr;  // sums to which the durations are added, except data time
    // Factor of the sum of a micro-batch's losses over its targets. If nullopt, the mean over the
    // targets is used instead.
    std::optional<double> target_weight = {};
  };
  // Makes an optimizer step on core().accumulation_steps() micro-batches of this replica, which
  // `next` returns. Returns their mean loss, a scalar in fp64 on the device that computed it. The
  // loss of the step is the mean of the results over the ranks.
  virtual at::Tensor Train(const Step& step, const std::function<Batch()>& next) = 0;

  // Returns the model's output, without gradients, in the mode that SetTrain set last. Pass the
  // output to model().Loss. If the model is divided over the tensor axis, the output is a part of
  // the whole output.
  virtual at::Tensor Forward(const at::Tensor& inputs) = 0;
  // Returns the whole output that belongs to `output`, a result of Forward. Collective over the
  // tensor axis.
  at::Tensor WholeOutput(const at::Tensor& output) const {
    return core().ranks().tensor() == nullptr ? output : model().WholeOutput(output);
  }
};

// Makes the model of a run without a pipeline. `model` is this rank's part over the tensor axis, or
// the whole model. `ranks` must not have a cut yet (MeshGroups::SetCut). `deferred` is the
// recording of a model that was constructed under DeferInit; null for any other model.
std::unique_ptr<TrainingModel> MakeWholeTrainingModel(const EngineConfig& config,
                                                      std::shared_ptr<Model> model,
                                                      std::shared_ptr<MeshGroups> ranks,
                                                      InitRecording* deferred);

// Makes this rank's stage of a pipeline. `model` was constructed under `deferred`, and is this
// rank's part over the tensor axis, with all stages. `ranks` must not be divided yet. For
// `layer_costs`, see CutModel.
std::unique_ptr<TrainingModel> MakePipelineTrainingModel(const EngineConfig& config,
                                                         std::shared_ptr<Model> model,
                                                         InitRecording deferred,
                                                         const std::vector<double>& layer_costs,
                                                         std::shared_ptr<MeshGroups> ranks);

// Returns the number of elements of the whole model's parameters. `model` may be a part of the
// whole.
int64_t CountWholeParameters(const Model& model);

}  // namespace dslaunch
