// The section "pipeline" of an engine configuration: DeepSpeed's keys, and schedule, virtual_stages
// and rank_order.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/mesh/mesh.h"

namespace dslaunch {

class JsonObject;

enum class PipelineScheduleType { kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubbleH1 };

const char* ScheduleTypeName(PipelineScheduleType type);  // "1f1b"

struct PipelineConfig {
  int64_t stages = 1;
  // "best": as many computed operations each, or, where these cannot be computed (PipelineModule),
  // parameters; "parameters": as many of these; "uniform": as many layers; "type:REGEX": as many
  // layers whose type the regular expression finds, in any case; "profile": as much measured time.
  std::string partition = "best";
  bool seed_layers = false;  // layer i of a PipelineModule is built with the seed 1234 + i
  int64_t activation_checkpoint_interval = 0;  // layers recomputed together; 0: no recomputation
  PipelineScheduleType schedule = PipelineScheduleType::kOneForwardOneBackward;
  int64_t virtual_stages = 1;  // chunks of each stage; above 1 for interleaved only
  RankOrder rank_order = RankOrder::kPipeData;
  // Whether the section needs a pipeline engine: for several stages or for recomputation.
  bool wanted() const { return stages > 1 || activation_checkpoint_interval > 0; }
};

// "is 3, which does not divide 4 ranks; ...": what is wrong with so many stages.
std::string StagesMisfit(int64_t stages, int64_t ranks);

// `ranks` is the world size; 0: unknown. `program_stages` is the program's number of stages; 0: it
// gives none. Throws TrainError kBadInput, naming the key, also if the stages do not divide the
// ranks or differ from the program's.
PipelineConfig ParsePipeline(JsonObject object, int64_t ranks, int64_t program_stages = 0);
nlohmann::ordered_json ShowPipeline(const PipelineConfig& pipeline);

}  // namespace dslaunch
