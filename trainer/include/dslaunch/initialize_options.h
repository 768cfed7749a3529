// Defines the options with which a program initializes an engine (engine.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dslaunch/deferred_init.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "dslaunch/shard.h"

namespace torch::optim {
class Optimizer;
}

namespace dslaunch {

// Creates the program's own optimizer for `weights`, the tensors that the engine updates on this
// rank:
// - At ZeRO stage 0 they are the trained parameters in their shapes, or their fp32 master
//   weights.
// - At stages 1 to 3 they are this rank's slices of the trained parameters, in one dimension. A
//   parameter of which this rank has no slice is left out.
// The optimizer must contain all of `weights` and nothing else, in any groups. Names are module
// paths. Called once by Initialize. The program may keep a copy of the result, for example for a
// torch::optim::LRScheduler, which it steps itself after each Step that returned true.
using OptimizerFactory = std::function<std::shared_ptr<torch::optim::Optimizer>(
    const std::vector<NamedTensor>& weights)>;

struct InitializeOptions {
  // The "optimizer" section as JSON, for example {"type": "AdamW", "params": {"lr": 0.001}}. Used
  // only if the configuration has no such section.
  std::string optimizer = {};
  // Creates the program's own optimizer; null to use the configured one. The engine accumulates,
  // averages, unscales and clips gradients as usual, then calls the optimizer's step(). Initialize
  // throws if the configuration also has "optimizer", "scheduler" or "cuda_graph", for an optimizer
  // that needs a closure (LBFGS), and in a pipeline. At stages 1 to 3 it throws for an optimizer
  // that may not be element-wise: any except torch::optim's Adam, AdamW, SGD, RMSprop and Adagrad,
  // unless the configuration has "zero_allow_untested_optimizer": true. The optimizer's state is
  // not part of a checkpoint, so LoadCheckpoint needs load_optimizer_states = false.
  OptimizerFactory make_optimizer = {};
  // The recording of a model that was constructed under DeferInit, or null. Initialize consumes it;
  // the caller owns it. With ZeRO each rank then materializes one parameter at a time and keeps
  // only its part: at stage 3 its shard, so no rank ever holds the whole model.
  InitRecording* deferred = nullptr;
  // If false, like "broadcast_buffers": false in the configuration, each rank keeps its own buffers
  // (queues, running statistics), and a checkpoint holds those of rank 0. If true, all ranks have
  // rank 0's buffers from the start and after each optimizer step.
  bool broadcast_buffers = true;
  // The group of ranks that divide the model's layers among themselves (tensor parallelism by the
  // program's own layers, like DeepSpeed's mpu); null if every rank has the whole model. The group
  // must be a Subgroup of the engine's group with consecutive ranks, of the same size on every
  // rank, and must outlive the engine. Other such groups hold the same parts and train on other
  // samples. Layers communicate in this group, in the same order on its ranks. Their outputs and
  // the gradients of whole parameters must be equal on all ranks of the group. Not with a pipeline,
  // parallel.mode, 1-bit optimizers or cuda_graph.
  const ProcessGroup* tensor_group = nullptr;
  // This rank's cuts of the parameters that are divided over tensor_group, by name. All other
  // parameters are whole: the engine gives them the values of the group's first rank, and norms
  // count them only on that rank.
  std::map<std::string, ParameterCut> cuts = {};
};

}  // namespace dslaunch
