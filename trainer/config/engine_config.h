// The engine's configuration: DeepSpeed's JSON, with the names, defaults and meaning of DeepSpeed
// 0.19.8. Keys that are not implemented are refused by name (unsupported_keys.cc). Unknown keys are
// refused at every depth, with the nearest known key. Keys of our own: optimizer.param_groups
// (optimizer_config.h), amp.opt_level, which stands for Apex's presets (precision_config.h),
// broadcast_buffers, parallel and cuda_graph.
//
// Differences from DeepSpeed: gradients accumulate in fp32 by default also in fp16 and bf16;
// buffers have the model's dtype, because batch norms on a CPU need one dtype for both;
// zero_optimization.overlap_comm is on by default at every stage; gradients of several
// micro-batches are sent in the dtype in which they accumulate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/base/dtype.h"
#include "trainer/config/monitor_config.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/parallel_config.h"
#include "trainer/config/pipeline_config.h"
#include "trainer/config/precision_config.h"
#include "trainer/config/scheduler_config.h"
#include "trainer/config/zero_config.h"

namespace dslaunch {

class JsonObject;

// train_batch_size == micro_batch_size * accumulation_steps * MeshOf(ranks).data.
struct BatchConfig {
  int64_t train_batch_size = 0;    // samples of one optimizer step, over all ranks
  int64_t micro_batch_size = 0;    // samples of one forward pass on one rank (of one pipeline)
  int64_t accumulation_steps = 1;  // micro-batches of one optimizer step on one rank
};

// How the ranks' gradients are combined.
struct CommunicationConfig {
  std::optional<Dtype> dtype;     // dtype of gradients in messages; nullopt: TravelDtype
  bool prescale = false;          // divide by the ranks before, not after, adding up
  double predivide_factor = 1.0;  // divisor before a postscaled sum; the rest follows it
  bool sum = false;               // only add up, without division
  bool overlap = true;            // exchange during the backward pass
};

// Number of steps at the start that cuda_graph runs without a graph: c10d::Reducer still rebuilds
// its buckets and measures itself in them.
inline constexpr int kGraphWarmUpSteps = 11;

enum class EngineLogLevel { kDebug, kInfo, kWarning, kError, kCritical };

// The reaction if ranks save one checkpoint under different tags.
enum class TagValidation { kIgnore, kWarn, kFail };

struct EngineConfig {
  BatchConfig batch;
  std::optional<OptimizerConfig> optimizer;  // nullopt: the program provides the optimizer
  SchedulerConfig scheduler;
  PrecisionConfig precision;
  CommunicationConfig communication;
  ZeroConfig zero;
  ParallelConfig parallel;
  PipelineConfig pipeline;
  TensorParallelConfig tensor_parallel;
  // activation_checkpointing.number_checkpoints: the model is divided into this many parts of
  // consecutive layers. Only the inputs of a part are kept for the backward pass, which computes
  // the rest again. 0: everything is kept. Not with a pipeline.
  int64_t number_checkpoints = 0;
  MonitorsConfig monitors;
  bool wall_clock_breakdown = false;
  TagValidation tag_validation = TagValidation::kWarn;
  double gradient_clipping = 1.0;  // largest L2 norm of the gradient; 0: no limit
  int64_t steps_per_print = 0;     // 0: no line per step
  bool dataloader_drop_last = false;
  // True: all ranks have rank 0's buffers, from the start and after each optimizer step. False:
  // each rank keeps its own.
  bool broadcast_buffers = true;
  bool dump_state = false;        // print the resolved configuration at the start
  bool memory_breakdown = false;  // print memory by category at the start and the end
  bool cuda_graph = false;        // record a step once and replay it
  // At ZeRO stages 1 to 3: accept an optimizer of the program that is not known to be element-wise.
  bool allow_untested_optimizer = false;
  // Line for rank 0 about the values taken for "auto" (auto_values.h); empty: there are none.
  std::string auto_notice;
  // How much rank 0 logs. Results and errors are always printed.
  EngineLogLevel log_level = EngineLogLevel::kInfo;

  // Returns the grid of `ranks` ranks. Throws TrainError kBadInput if they cannot be divided that
  // way.
  Mesh MeshOf(int ranks) const;
  // Whether the ranks' weights differ from each other after some of the steps.
  bool TrainsApart() const {
    return parallel.TrainsApart() ||
           (optimizer && optimizer->type == OptimizerConfig::Type::kZeroOneAdam);
  }
};

// The part of the layout that the program decides; 0 where the program leaves it open.
struct ProgramLayout {
  int64_t stages = 0;  // stages of its PipelineModule
  int64_t tensor = 0;  // size of its tensor_group
};

// Returns the dtype in which gradients are sent and to which their sum over the ranks is rounded.
// Without communication_data_type it is the model's dtype if a step has one micro-batch, because
// its gradients have that dtype; otherwise the dtype in which they accumulate, because rounding
// would lose the precision of the accumulation.
Dtype TravelDtype(const EngineConfig& config);

// Computes the third of the three sizes from any two; a train or micro batch size alone means no
// accumulation. If they contradict each other or are missing, throws an error of `object` that
// shows the arithmetic.
BatchConfig ResolveBatch(std::optional<int64_t> train_batch_size,
                         std::optional<int64_t> micro_batch_size,
                         std::optional<int64_t> accumulation_steps, int64_t ranks,
                         const JsonObject& object);

// Read an engine configuration: the first function a section of a recipe, whose keys are named with
// the object's path, the second the text of a file, which `source` names. `ranks` is the world
// size; 0 if nothing is trained, so that batch sizes need not match it. A schedule whose
// total_num_steps is "auto" is completed by FitToRun. A configuration without an optimizer gets
// `program_optimizer`, if there is one, or `optimizer_json`, a section "optimizer" as text (empty:
// none). Throw TrainError kBadInput, naming the key, also if it contradicts `program`.
EngineConfig ParseEngineConfig(const JsonObject& given, int64_t ranks,
                               const std::optional<OptimizerConfig>& program_optimizer = {},
                               const ProgramLayout& program = {});
EngineConfig ParseEngineConfig(const std::string& json_text, const std::string& source,
                               int64_t ranks, const std::string& optimizer_json = "",
                               const ProgramLayout& program = {});

// Returns every resolved setting, defaults included, as indented JSON for people.
std::string DescribeEngineConfig(const EngineConfig& config);

// Returns the settings that must be equal on all ranks, for ConfigDisagreement (same_config.h).
std::string SharedSettings(const EngineConfig& config);

}  // namespace dslaunch
