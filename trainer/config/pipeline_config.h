// Defines the section "pipeline" of an engine configuration: DeepSpeed's keys, and the keys
// schedule, virtual_stages and rank_order of dslaunch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/mesh/mesh.h"

namespace dslaunch {

class JsonObject;

enum class PipelineScheduleType { kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubbleH1 };

const char* ScheduleTypeName(PipelineScheduleType type);  // returns a name such as "1f1b"

struct PipelineConfig {
  int64_t stages = 1;
  // How layers are divided among the stages:
  // - "best": equal numbers of computed operations, or of parameters if the operations cannot be
  //   computed (PipelineModule);
  // - "parameters": equal numbers of parameters;
  // - "uniform": equal numbers of layers;
  // - "type:REGEX": equal numbers of layers whose type the regular expression matches, ignoring
  //   case;
  // - "profile": equal measured times.
  std::string partition = "best";
  // True to build layer i of a PipelineModule with the seed 1234 + i.
  bool seed_layers = false;
  // Number of layers that are recomputed together; 0 to disable recomputation.
  int64_t activation_checkpoint_interval = 0;
  PipelineScheduleType schedule = PipelineScheduleType::kOneForwardOneBackward;
  // Number of chunks of each stage; more than 1 only for the interleaved schedule.
  int64_t virtual_stages = 1;
  RankOrder rank_order = RankOrder::kPipeData;
  // Returns whether the section needs a pipeline engine: for several stages or for recomputation.
  bool wanted() const { return stages > 1 || activation_checkpoint_interval > 0; }
};

// Returns why the ranks cannot be divided into `stages` stages, such as "is 3, which does not
// divide 4 ranks; ...".
std::string StagesMisfit(int64_t stages, int64_t ranks);

// Reads the section "pipeline". `ranks` is the world size; 0 if unknown. `program_stages` is the
// program's number of stages; 0 if the program does not set it. Throws TrainError kBadInput, naming
// the key, also if the stages do not divide the ranks or differ from the program's stages.
PipelineConfig ParsePipeline(JsonObject object, int64_t ranks, int64_t program_stages = 0);
nlohmann::ordered_json ShowPipeline(const PipelineConfig& pipeline);

}  // namespace dslaunch
