// One batch of one stage: its list of actions, one after the other.
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

// What stays from batch to batch.
struct Stage {
  MeshPlace place;  // of this rank
  std::vector<std::vector<StageLayer>> chunks;
  Tensors buffers;  // of all layers
  PipelineLoss loss;
  int64_t recompute_interval = 0;  // layers; 0: nothing is recomputed
  uint64_t seed = 0;               // of the random numbers of layers
  EngineCore& core;
  StageLink& link;
};

// A schedule, as one stage runs it.
struct StagePlan {
  StagePlan(PipelineSchedule made, int stage);

  PipelineSchedule schedule;
  std::vector<std::vector<ChunkPlace>> deferred_sends;  // DeferredSendsAfter
};

enum class BatchPurpose { kTrain, kEvaluate, kInfer };

// Random numbers of a layer and of the loss depend on the seed, the step, the micro-batch, the
// replica and the layer (LayerSeed), so they are the same wherever the model is cut, when it is
// computed again, and where it is whole. One thread.
class StageBatch {
 public:
  // All must outlive this.
  StageBatch(const Stage& stage, const StagePlan& plan, BatchPurpose purpose,
             const MicroBatchSource& next);

  // Once. A training batch ends with the optimizer's step.
  void Run();

  int micro_batches() const { return plan_.schedule.micro_batches; }
  // Of this replica, on its last stage; else 0. Waits for the device.
  double loss_sum() const { return loss_sum_.defined() ? loss_sum_.item<double>() : 0; }
  // Of BatchPurpose::kInfer, on the last stage.
  const Tensors& outputs() const { return outputs_; }

 private:
  // What a micro-batch leaves in a chunk.
  struct Passage {
    Tensors inputs;        // leaves; from the stage itself, or kept until their gradients are there
    Tensors outputs;       // until they are sent
    MessageLayout layout;  // of the outputs
    // Where the backward pass begins: what computed the outputs that need a gradient. Not the
    // outputs, whose memory is kept only where the backward pass reads it.
    std::vector<torch::autograd::Edge> roots;
    Tensors output_gradients;  // where the loss is, or from the stage itself
    Tensors input_gradients;   // until they are sent
    WeightGradients weights;
  };

  bool trains() const { return purpose_ == BatchPurpose::kTrain; }
  Passage& PassageOf(const Action& action) { return passages_[{action.chunk, action.micro_batch}]; }
  LinkMessage MessageOf(const Action& action) const {
    return {action.micro_batch, plan_.schedule.micro_batches};
  }
  std::string Where(const std::string& what, const Action& action) const;
  // With another stage, of the chunk that is the later one of the two that exchange something.
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
  std::map<std::pair<int, int>, Passage> passages_;  // by chunk and micro-batch
  std::map<int, Tensors> targets_;  // by micro-batch; of a stage that is first and last
  at::Tensor loss_sum_;             // fp64
  Tensors outputs_;
};

}  // namespace dslaunch
