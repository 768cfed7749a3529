#include "trainer/config/pipeline_config.h"

#include <algorithm>
#include <iterator>
#include <regex>

#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

constexpr int64_t kMostStages = 4096;
// Maximum length in bytes, because std::regex reads nested groups by recursion.
constexpr size_t kMaxPatternBytes = 1000;

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1"};

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

const KeyTable<PipelineConfig>& PipelineKeys() {
  using P = PipelineConfig;
  static const KeyTable<P> kKeys = {
      {"stages",
       [](JsonObject& object, const char* key, P& pipeline) {
         if (object.TypeOf(key) == JsonType::string) {
           object.Word(key, {"auto"});
         } else {
           pipeline.stages = object.Int(key, 1, kMostStages).value_or(0);
         }
       },
       [](const P& pipeline) { return pipeline.stages; },
       "number of stages; `auto`: the value of the program's PipelineModule; default 1"},
      {"partition",
       [](JsonObject& object, const char*, P& pipeline) {
         pipeline.partition = ParsePartition(object);
       },
       [](const P& pipeline) { return pipeline.partition; },
       "how layers are assigned to stages: `best` (equal computing; without a list of layers "
       "`parameters`), `parameters`, `uniform`, `type:REGEX` or `profile` (measured time)"},
      BoolKey("seed_layers", &P::seed_layers,
              "layer i of a PipelineModule is built with the seed 1234 + i"),
      IntKey("activation_checkpoint_interval", &P::activation_checkpoint_interval, {0},
             "number of consecutive layers that are recomputed together in the backward pass; 0: "
             "no recomputation"),
      WordKey("schedule", &P::schedule, {std::begin(kSchedules), std::end(kSchedules)},
              "default 1f1b; not a key of DeepSpeed"),
      IntKey("virtual_stages", &P::virtual_stages, {1, kMostStages},
             "model chunks of each stage; above 1 only with the schedule interleaved, whose "
             "default is 2; not a key of DeepSpeed"),
      WordKey("rank_order", &P::rank_order,
              {RankOrderName(RankOrder::kPipeData), RankOrderName(RankOrder::kDataPipe)},
              "which ranks have adjacent numbers: those of one stage (`pipe_data`) or those of one "
              "replica (`data_pipe`); default pipe_data; not a key of DeepSpeed"),
      // These keys select how DeepSpeed sends activations between the stages of tensor-parallel
      // models, so they have no effect here.
      IgnoredBool<P>("pipe_partitioned"),
      IgnoredBool<P>("grad_partitioned")};
  return kKeys;
}

}  // namespace

const char* ScheduleTypeName(PipelineScheduleType type) {
  return kSchedules[static_cast<size_t>(type)];
}

std::string StagesMisfit(int64_t stages, int64_t ranks) {
  return "is " + std::to_string(stages) + ", which does not divide " + std::to_string(ranks) +
         (ranks == 1 ? " rank" : " ranks") +
         "; every replica of the pipeline needs one rank for each stage";
}

PipelineConfig ParsePipeline(JsonObject object, int64_t ranks, int64_t program_stages) {
  PipelineConfig pipeline;
  pipeline.stages = 0;  // 0 until a key or the program sets the number of stages
  ReadKeys(object, PipelineKeys(), pipeline);
  object.RefuseUnknown();
  if (program_stages > 0 && pipeline.stages > 0 && pipeline.stages != program_stages) {
    object.Fail("stages", "is " + std::to_string(pipeline.stages) +
                              ", but the program's PipelineModule has num_stages " +
                              std::to_string(program_stages) + "; leave one of them out");
  }
  if (pipeline.stages == 0) pipeline.stages = std::max<int64_t>(program_stages, 1);
  const bool interleaved = pipeline.schedule == PipelineScheduleType::kInterleaved;
  if (interleaved && !object.Has("virtual_stages")) pipeline.virtual_stages = 2;
  if (pipeline.virtual_stages > 1 && !interleaved) {
    object.Fail("virtual_stages", "is " + std::to_string(pipeline.virtual_stages) +
                                      ", which only the schedule interleaved supports");
  }
  if (ranks > 0 && ranks % pipeline.stages != 0) {
    object.Fail("stages", StagesMisfit(pipeline.stages, ranks));
  }
  return pipeline;
}

nlohmann::ordered_json ShowPipeline(const PipelineConfig& pipeline) {
  return ShowKeys(PipelineKeys(), pipeline);
}

}  // namespace dslaunch
