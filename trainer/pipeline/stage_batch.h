// Runs a batch on one stage, by executing the stage's list of actions in order.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/pipeline.h"
#include "trainer/engine/engine_batch.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/nn/split_backward.h"
#include "trainer/pipeline/deferred_sends.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/stage.h"
#include "trainer/pipeline/stage_link.h"

namespace dslaunch {

// The state that all batches of a stage share.
struct Stage {
  MeshPlace place;  // stage and replica of this rank
  std::vector<std::vector<StageLayer>> chunks;
  Tensors buffers;  // buffers of all layers in this stage
  PipelineLoss loss;
  // Number of layers that are recomputed together; 0 disables recomputation.
  int64_t recompute_interval = 0;
  uint64_t seed = 0;  // seed of the layers' random numbers
  EngineCore& core;
  StageLink& link;
};

// A schedule with the additional data that a stage needs to run it.
struct StagePlan {
  StagePlan(PipelineSchedule made, int stage);

  PipelineSchedule schedule;
  // Result of DeferredSendsAfter for this stage.
  std::vector<std::vector<ChunkPlace>> deferred_sends;
};

enum class BatchPurpose { kTrain, kEvaluate, kInfer };

// Runs one batch of a stage. The random numbers of a layer and of the loss depend on the seed, the
// step, the micro-batch, the replica and the layer (LayerSeed). They are therefore equal for every
// cut of the model, for a model that is not cut, and when a layer is recomputed. Not thread-safe.
class StageBatch {
 public:
  // Prepares a batch. The arguments must outlive this object.
  StageBatch(const Stage& stage, const StagePlan& plan, BatchPurpose purpose,
             const MicroBatchSource& next);

  // Runs the batch. Call it once. A training batch ends with the optimizer's step.
  void Run();

  int micro_batches() const { return plan_.schedule.micro_batches; }
  // Returns the sum of this replica's losses on its last stage, and 0 on other stages. Waits for
  // the device.
  double loss_sum() const { return loss_sum_.defined() ? loss_sum_.item<double>() : 0; }
  // Returns the model's outputs; empty except on the last stage with BatchPurpose::kInfer.
  const Tensors& outputs() const { return outputs_; }

 private:
  // The state of a micro-batch in a chunk.
  struct Passage {
    // Chunk's inputs, which are leaves of autograd; kept until their gradients exist.
    Tensors inputs;
    Tensors outputs;       // chunk's outputs, kept until they are sent
    MessageLayout layout;  // layout of the outputs as a message
    // The roots of the backward pass: the graph nodes of the outputs that require a gradient. The
    // outputs themselves are not kept, so that their memory is freed unless the backward pass reads
    // it.
    std::vector<torch::autograd::Edge> roots;
    // Gradients of the outputs; set only on the stage that computes the loss.
    Tensors output_gradients;
    Tensors input_gradients;  // gradients of the inputs, kept until they are sent
    WeightGradients weights;
  };

  bool trains() const { return purpose_ == BatchPurpose::kTrain; }
  Passage& PassageOf(const Action& action) { return passages_[{action.chunk, action.micro_batch}]; }
  LinkMessage MessageOf(const Action& action) const {
    return {action.micro_batch, plan_.schedule.micro_batches};
  }
  std::string Where(const std::string& what, const Action& action) const;
  // Returns the channel to or from a chunk of another stage. A channel has the number of the later
  // of its two chunks.
  LinkChannel Channel(const ChunkPlace& other, bool gradient) const;

  void Do(const Action& action, bool last_backward);
  void Forward(const Action& action);
  Tensors InputsFor(const Action& action);
  at::Tensor OnDevice(const at::Tensor& tensor) const;
  MicroBatch Next(const Action& action);
  uint64_t SeedOf(const Action& action, size_t layer) const;
  Tensors RunChunk(const Action& action, Tensors tensors) const;
  Tensors RunLayers(const Action& action, size_t from, size_t to, Tensors tensors) const;
  void Leave(const Action& action, Tensors outputs);
  void EndModel(const Action& action, const Tensors& outputs);
  at::Tensor Loss(const Action& action, const Tensors& outputs, const Tensors& targets) const;
  void CheckSendable(const Action& action, const Tensors& outputs) const;
  void Backward(const Action& action, bool last);
  Tensors OutputGradients(const Action& action);

  const Stage& stage_;
  const StagePlan& plan_;
  const BatchPurpose purpose_;
  const MicroBatchSource& next_;
  const int64_t step_;
  EngineBatch engine_;
  // State of each passage, by chunk and micro-batch.
  std::map<std::pair<int, int>, Passage> passages_;
  std::map<int, Tensors> targets_;  // targets by micro-batch; used if there is only one stage
  at::Tensor loss_sum_;             // sum of the losses, an fp64 scalar
  Tensors outputs_;
};

}  // namespace dslaunch
