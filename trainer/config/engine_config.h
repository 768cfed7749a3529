// Defines the engine's configuration: DeepSpeed's JSON, with the names, defaults and meaning of
// DeepSpeed 0.19.8. Keys that are not implemented are refused by name (unsupported_keys.cc).
// Unknown keys are refused at every depth, with the nearest known key. dslaunch adds these keys:
// optimizer.param_groups (optimizer_config.h), amp.opt_level, which selects Apex's presets
// (precision_config.h), broadcast_buffers, parallel and cuda_graph.
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

// Batch sizes, for which train_batch_size == micro_batch_size * accumulation_steps *
// MeshOf(ranks).data.
struct BatchConfig {
  int64_t train_batch_size = 0;  // number of samples in an optimizer step, over all ranks
  // Number of samples in a forward pass on one rank, or in one pipeline.
  int64_t micro_batch_size = 0;
  int64_t accumulation_steps = 1;  // number of micro-batches in an optimizer step on one rank
};

// Settings for combining the ranks' gradients.
struct CommunicationConfig {
  std::optional<Dtype> dtype;  // dtype of gradients in messages; nullopt to use TravelDtype
  // True to divide by the number of ranks before the sum, false to divide after it.
  bool prescale = false;
  // Divisor before the sum without `prescale`; the rest of the division follows the sum.
  double predivide_factor = 1.0;
  bool sum = false;     // true to sum gradients without division
  bool overlap = true;  // true to exchange gradients during the backward pass
};

// Number of steps at the start that cuda_graph runs without a graph, because c10d::Reducer rebuilds
// its buckets and takes measurements during these steps.
inline constexpr int kGraphWarmUpSteps = 11;

enum class EngineLogLevel { kDebug, kInfo, kWarning, kError, kCritical };

// Reaction if ranks save one checkpoint under different tags.
enum class TagValidation { kIgnore, kWarn, kFail };

struct EngineConfig {
  BatchConfig batch;
  // Settings of the optimizer; nullopt if the program provides the optimizer.
  std::optional<OptimizerConfig> optimizer;
  SchedulerConfig scheduler;
  PrecisionConfig precision;
  CommunicationConfig communication;
  ZeroConfig zero;
  ParallelConfig parallel;
  PipelineConfig pipeline;
  TensorParallelConfig tensor_parallel;
  // Number of parts of consecutive layers into which the model is divided
  // (activation_checkpointing.number_checkpoints). Only the inputs of a part are kept for the
  // backward pass, which computes the other activations again. 0 to keep all activations. Not with
  // a pipeline.
  int64_t number_checkpoints = 0;
  MonitorsConfig monitors;
  bool wall_clock_breakdown = false;
  TagValidation tag_validation = TagValidation::kWarn;
  double gradient_clipping = 1.0;  // maximum L2 norm of the gradient; 0 for no limit
  int64_t steps_per_print = 0;     // number of steps per printed line; 0 to print none
  bool dataloader_drop_last = false;
  // If true, all ranks have rank 0's buffers, from the start and after each optimizer step. If
  // false, each rank keeps its own buffers.
  bool broadcast_buffers = true;
  bool dump_state = false;        // true to print the resolved configuration at the start
  bool memory_breakdown = false;  // true to print memory by category at the start and the end
  bool cuda_graph = false;        // true to record a step once and replay it
  // True to accept, at ZeRO stages 1 to 3, an optimizer of the program that is not known to be
  // element-wise.
  bool allow_untested_optimizer = false;
  // Notice that rank 0 prints about the values that replaced "auto" (auto_values.h); empty if there
  // are none.
  std::string auto_notice;
  // Amount of information that rank 0 logs. Results and errors are always printed.
  EngineLogLevel log_level = EngineLogLevel::kInfo;

  // Returns the mesh of `ranks` ranks. Throws TrainError kBadInput if the ranks cannot be divided
  // according to the configuration.
  Mesh MeshOf(int ranks) const;
  // Returns whether the ranks' weights differ from each other after some of the steps.
  bool TrainsApart() const {
    return parallel.TrainsApart() ||
           (optimizer && optimizer->type == OptimizerConfig::Type::kZeroOneAdam);
  }
};

// The part of the layout that the program decides; 0 where the program leaves the decision to the
// configuration.
struct ProgramLayout {
  int64_t stages = 0;  // number of stages of the program's PipelineModule
  int64_t tensor = 0;  // size of the program's tensor_group
};

// Returns the dtype in which gradients are sent and to which their sum over the ranks is rounded.
// Without communication_data_type, the result is the model's dtype if a step has one micro-batch,
// because its gradients have that dtype. Otherwise it is the dtype in which gradients accumulate,
// because rounding would lose the precision of the accumulation.
Dtype TravelDtype(const EngineConfig& config);

// Computes the third of the three batch sizes from any two. A train or micro batch size alone
// implies no accumulation. If the sizes contradict each other or are missing, throws an error of
// `object` that shows the arithmetic.
BatchConfig ResolveBatch(std::optional<int64_t> train_batch_size,
                         std::optional<int64_t> micro_batch_size,
                         std::optional<int64_t> accumulation_steps, int64_t ranks,
                         const JsonObject& object);

// Reads an engine configuration from a section of a recipe. `ranks` is the world size; 0 if nothing
// is trained, so that batch sizes need not match it. A schedule whose total_num_steps is "auto" is
// completed later by FitToRun. A configuration without an optimizer gets `program_optimizer`, if
// there is one. Throws TrainError kBadInput, naming the key with the object's path, if a value is
// not valid or contradicts `program`.
EngineConfig ParseEngineConfig(const JsonObject& given, int64_t ranks,
                               const std::optional<OptimizerConfig>& program_optimizer = {},
                               const ProgramLayout& program = {});
// Reads an engine configuration from the text of a file, which `source` names in messages. A
// configuration without an optimizer gets `optimizer_json`, a section "optimizer" as text; empty if
// there is none. Otherwise like the overload above.
EngineConfig ParseEngineConfig(const std::string& json_text, const std::string& source,
                               int64_t ranks, const std::string& optimizer_json = "",
                               const ProgramLayout& program = {});

// Returns every resolved setting, including defaults, as indented JSON for people.
std::string DescribeEngineConfig(const EngineConfig& config);

// Returns the settings that must be equal on all ranks, for ConfigDisagreement (same_config.h).
std::string SharedSettings(const EngineConfig& config);

}  // namespace dslaunch
