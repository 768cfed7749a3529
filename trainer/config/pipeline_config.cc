#include "trainer/config/pipeline_config.h"

#include <map>
#include <optional>
#include <regex>
#include <set>

#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

constexpr int64_t kMostStages = 4096;
constexpr size_t kMaxPatternBytes = 1000;  // std::regex reads nested groups by recursion

const std::map<std::string, PipelineScheduleType>& Schedules() {
  static const std::map<std::string, PipelineScheduleType> kSchedules = {
      {"gpipe", PipelineScheduleType::kGpipe},
      {"1f1b", PipelineScheduleType::kOneForwardOneBackward},
      {"interleaved", PipelineScheduleType::kInterleaved},
      {"zb-h1", PipelineScheduleType::kZeroBubbleH1}};
  return kSchedules;
}

std::string ParsePartition(JsonObject& object) {
  const std::string partition = object.String("partition").value_or(PipelineConfig().partition);
  for (const char* known : {"best", "uniform", "parameters", "profile"}) {
    if (partition == known) return partition;
  }
  const std::string prefix = "type:";
  if (!partition.starts_with(prefix) || partition == prefix) {
    object.Fail("partition", "is \"" + partition +
                                 "\"; it must be best, parameters, uniform, profile or "
                                 "type:REGEX, as in type:block");
  }
  if (partition.size() > kMaxPatternBytes) {
    object.Fail("partition", "is longer than " + std::to_string(kMaxPatternBytes) + " bytes");
  }
  try {
    const std::regex regex(partition.substr(prefix.size()), std::regex::icase);
  } catch (const std::regex_error&) {
    object.Fail("partition", "is \"" + partition + "\", which is not a valid regular expression");
  }
  return partition;
}

int64_t ParseStages(JsonObject& object, int64_t program_stages) {
  std::optional<int64_t> stages;
  if (object.HasString("stages")) {
    object.Word("stages", {"auto"});
  } else {
    stages = object.Int("stages", 1, kMostStages);
  }
  if (program_stages == 0) return stages.value_or(1);
  if (stages && *stages != program_stages) {
    object.Fail("stages", "is " + std::to_string(*stages) + ", but the program's PipelineModule " +
                              "has num_stages " + std::to_string(program_stages) +
                              "; leave one of them out");
  }
  return program_stages;
}

}  // namespace

const char* ScheduleTypeName(PipelineScheduleType type) {
  for (const auto& [name, value] : Schedules()) {
    if (value == type) return name.c_str();
  }
  return "";
}

std::string StagesMisfit(int64_t stages, int64_t ranks) {
  return "is " + std::to_string(stages) + ", which does not divide " + std::to_string(ranks) +
         (ranks == 1 ? " rank" : " ranks") +
         "; every replica of the pipeline needs one rank for each stage";
}

PipelineConfig ParsePipeline(JsonObject object, int64_t ranks, int64_t program_stages) {
  PipelineConfig pipeline;
  pipeline.stages = ParseStages(object, program_stages);
  pipeline.partition = ParsePartition(object);
  pipeline.seed_layers = object.Bool("seed_layers").value_or(false);
  pipeline.activation_checkpoint_interval =
      object.Int("activation_checkpoint_interval", 0).value_or(0);
  std::set<std::string> names;
  for (const auto& [name, type] : Schedules()) names.insert(name);
  pipeline.schedule = Schedules().at(object.Word("schedule", names).value_or("1f1b"));
  const bool interleaved = pipeline.schedule == PipelineScheduleType::kInterleaved;
  pipeline.virtual_stages =
      object.Int("virtual_stages", 1, kMostStages).value_or(interleaved ? 2 : 1);
  if (pipeline.virtual_stages > 1 && !interleaved) {
    object.Fail("virtual_stages", "is " + std::to_string(pipeline.virtual_stages) +
                                      ", which only the schedule interleaved supports");
  }
  if (object.Word("rank_order", {"pipe_data", "data_pipe"}).value_or("pipe_data") == "data_pipe") {
    pipeline.rank_order = RankOrder::kDataPipe;
  }
  // Over the ranks of tensor parallelism, which is one.
  for (const char* key : {"pipe_partitioned", "grad_partitioned"}) (void)object.Bool(key);
  object.RefuseUnknown();
  if (ranks > 0 && ranks % pipeline.stages != 0) {
    object.Fail("stages", StagesMisfit(pipeline.stages, ranks));
  }
  return pipeline;
}

}  // namespace dslaunch
