#include "trainer/program/plan.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/format.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/data/dataset.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/schedule_simulation.h"
#include "trainer/pipeline/stage.h"
#include "trainer/program/prediction_writer.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/memory_plan.h"
#include "trainer/train/pass_memory.h"
#include "trainer/train/prepare.h"

namespace dslaunch {
namespace {

constexpr int kPlanColumns = 120;

Batch FirstSample(const Dataset& data) {
  const int64_t first = 0;
  return data.Fetch({&first, 1});
}

StageParts Cut(const Recipe& recipe, const Dataset& data, int stage,
               const std::vector<double>& layer_costs) {
  DeferredModel deferred = DeferModel(recipe, data.input_shape(), PartToPlan(recipe.engine));
  return CutModel(deferred.model, std::move(deferred.recording), recipe.engine.pipeline, stage,
                  layer_costs);
}

// Returns a line about the layers of pipeline stage `stage`: "stage 1: layers 3 to 5, 1.2 M
// parameters; ..."
std::string StageLine(const StageParts& cut, int stage, int stages) {
  std::string line;
  for (size_t part = static_cast<size_t>(stage); part < cut.parts.size();
       part += static_cast<size_t>(stages)) {
    line += (line.empty() ? Format("stage %d: ", stage) : "; ") + cut.parts[part];
  }
  return line;
}

LayerParts PartsOf(const std::vector<StageParts>& stages) {
  LayerParts parts;
  for (size_t chunk = 0; chunk < stages[0].chunks.size(); ++chunk) {
    for (const StageParts& stage : stages) {
      const std::vector<StageLayer>& layers = stage.chunks[chunk];
      parts.emplace_back(layers.front().index, layers.back().index + 1);
    }
  }
  return parts;
}

std::vector<StageParts> CutAll(const Recipe& recipe, const Dataset& data,
                               const std::vector<double>& layer_costs) {
  std::vector<StageParts> stages;
  for (int stage = 0; stage < recipe.engine.pipeline.stages; ++stage) {
    stages.push_back(Cut(recipe, data, stage, layer_costs));
  }
  return stages;
}

// Returns measure(). If the measurement is impossible, which can happen for a user's own model,
// prints the reason and returns an empty result.
template <class Measure>
auto OrExplain(const Measure& measure, const char* what) -> decltype(measure()) {
  try {
    return measure();
  } catch (const TrainError& error) {
    if (error.code() != ExitCode::kBadInput) throw;
    PrintLine(std::string(what) + ": " + error.what());
    return {};
  }
}

MemoryPlan PlanPart(const Recipe& recipe, const torch::nn::Module& module, const PassMemory& passes,
                    bool on_gpu) {
  const ModelSizes sizes = SizesOf(module);
  MemoryPlan plan = PlanMemory(sizes, recipe.engine, passes);
  if (recipe.run.memory_checkpoint > 0) {
    plan.copies = PlanCopies(sizes, recipe.engine, recipe.lora.has_value(), on_gpu);
  }
  return plan;
}

std::vector<MemoryPlan> PlanWhole(const Recipe& recipe, const DataSplits& data, bool on_gpu) {
  const DeferredModel deferred =
      DeferModel(recipe, data.train->input_shape(), PartToPlan(recipe.engine));
  const PassMemory passes = OrExplain([&] { return MeasurePass(recipe, FirstSample(*data.train)); },
                                      "activations are not estimated");
  const MemoryPlan plan = PlanPart(recipe, *deferred.model, passes, on_gpu);
  PrintLine(PlanText(plan));
  return {plan};
}

std::vector<MemoryPlan> PlanStages(const Recipe& recipe, const DataSplits& data, bool on_gpu) {
  const auto stages = static_cast<int>(recipe.engine.pipeline.stages);
  const std::vector<StageParts> cut =
      CutAll(recipe, *data.train, LayerCosts(recipe, OneSample(*data.train)));
  const std::vector<PassMemory> passes =
      OrExplain([&] { return MeasureStages(recipe, PartsOf(cut), FirstSample(*data.train)); },
                "activations are not estimated");
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<size_t>(stage);
    const MemoryPlan plan =
        PlanPart(recipe, *cut[at].module, passes.empty() ? PassMemory() : passes[at], on_gpu);
    PrintLine(StageLine(cut[at], stage, stages));
    PrintLine(PlanText(plan));
    plans.push_back(plan);
  }
  return plans;
}

PlanPlace PlaceOf(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  PlanPlace place;
  place.ranks = recipe.run.ranks.value_or(env.world_size);
  place.ranks_per_node = recipe.run.ranks_per_node.value_or(
      recipe.run.ranks ? 0 : static_cast<int64_t>(env.local_world_size));
  if (device.accelerator != nullptr) {
    place.device_bytes = device.accelerator->Traits(device.device.index()).memory_bytes;
  }
  place.node_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return place;
}

void WriteJson(const std::string& file, const std::vector<MemoryPlan>& plans,
               const PlanPlace& place) {
  if (file.empty()) return;
  std::ofstream out(file, std::ios::app);
  for (size_t stage = 0; stage < plans.size(); ++stage) {
    out << PlanJson(plans[stage], place, static_cast<int>(stage)) << '\n';
  }
  out.flush();
  if (out) return;
  throw TrainError(ExitCode::kIo,
                   "run.metrics_jsonl: cannot write " + file + ": " + std::strerror(errno));
}

// Returns the durations of the passes of each part of the model, in the unit of `layer_costs`, the
// costs of forward passes. Assumes that the backward passes for inputs and for weights each take as
// long as the forward pass.
std::vector<std::vector<ChunkTimes>> TimesOf(const LayerParts& parts, size_t stages,
                                             const std::vector<double>& layer_costs) {
  std::vector<std::vector<ChunkTimes>> times(stages);
  for (size_t part = 0; part < parts.size(); ++part) {
    double cost = 0;
    for (size_t i = parts[part].first; i < parts[part].second; ++i) cost += layer_costs[i];
    times[part % stages].push_back({cost, cost, cost});
  }
  return times;
}

// Returns the maximum activations that stage 0 holds, in units of one micro-batch of a whole stage.
double MostKept(const PipelineSchedule& schedule) {
  int kept = 0, most = 0;
  for (const Action& action : schedule.actions[0]) {
    if (action.kind == ActionKind::kForward) most = std::max(most, ++kept);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) --kept;
  }
  return static_cast<double>(most) / schedule.virtual_stages;
}

// Prints, for each schedule of the configured pipeline, the duration of a step relative to a step
// in which no stage waits.
void CompareSchedules(const Recipe& recipe, const Dataset& data,
                      const std::vector<double>& layer_costs) {
  const auto stages = static_cast<int>(recipe.engine.pipeline.stages);
  const auto micro_batches = static_cast<int>(recipe.engine.batch.accumulation_steps);
  const double all = std::accumulate(layer_costs.begin(), layer_costs.end(), 0.0);
  const double ideal = 3 * all * micro_batches / stages;
  PrintLine(Format("%-14s %10s %8s %22s", "schedule", "step", "idle", "kept on stage 0 (mb)"));
  for (const PipelineScheduleType type :
       {PipelineScheduleType::kGpipe, PipelineScheduleType::kOneForwardOneBackward,
        PipelineScheduleType::kInterleaved, PipelineScheduleType::kZeroBubbleH1}) {
    Recipe changed = recipe;
    PipelineConfig& config = changed.engine.pipeline;
    config.schedule = type;
    config.virtual_stages = type == PipelineScheduleType::kInterleaved
                                ? std::max<int64_t>(recipe.engine.pipeline.virtual_stages, 2)
                                : 1;
    if (config.stages * config.virtual_stages > static_cast<int64_t>(layer_costs.size())) continue;
    const PipelineSchedule schedule =
        MakePipelineSchedule(type, stages, micro_batches, static_cast<int>(config.virtual_stages));
    const LayerParts parts = PartsOf(CutAll(changed, data, layer_costs));
    const SimulatedRun run =
        Simulate(schedule, {.chunks = TimesOf(parts, static_cast<size_t>(stages), layer_costs)});
    const bool chosen = type == recipe.engine.pipeline.schedule;
    PrintLine(Format("%-14s %8.2f x %6.0f %% %22.1f%s", ScheduleTypeName(type), run.total / ideal,
                     100 * run.idle_fraction, MostKept(schedule), chosen ? "   <- chosen" : ""));
  }
  PrintLine(Format("step: of one without waiting, equally divided, in %d micro-batches (mb)",
                   micro_batches));
}

}  // namespace

void PlanMemoryOfRecipe(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  if (env.rank != 0) return;
  const DataSplits data = OpenData(recipe.data, recipe.model.needs());
  const bool on_gpu = device.accelerator != nullptr;
  const std::vector<MemoryPlan> plans = recipe.engine.pipeline.stages == 1
                                            ? PlanWhole(recipe, data, on_gpu)
                                            : PlanStages(recipe, data, on_gpu);
  const PlanPlace place = PlaceOf(recipe, env, device);
  PrintLine(PlaceText(plans, place));
  WriteJson(recipe.run.metrics_jsonl, plans, place);
}

void PlanPipelineOfRecipe(const Recipe& recipe, const WorkerEnv& env) {
  if (env.rank != 0) return;
  const DataSplits data = OpenData(recipe.data, recipe.model.needs());
  const PipelineConfig& config = recipe.engine.pipeline;
  const auto stages = static_cast<int>(config.stages);
  const std::vector<double> cut_by = LayerCosts(recipe, OneSample(*data.train));
  const std::vector<double> flops =
      OrExplain([&] { return LayerFlops(recipe, OneSample(*data.train)); },
                "the layers' costs are not known, so all stages count the same");
  const std::vector<StageParts> cut = CutAll(recipe, *data.train, cut_by);
  const std::vector<double>& costs = config.partition == "profile" ? cut_by : flops;
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  const LayerParts parts = PartsOf(cut);
  for (int stage = 0; stage < stages; ++stage) {
    std::string line = StageLine(cut[static_cast<size_t>(stage)], stage, stages);
    double own = 0;
    for (size_t part = static_cast<size_t>(stage); part < parts.size();
         part += static_cast<size_t>(stages)) {
      for (size_t i = parts[part].first; i < parts[part].second && all > 0; ++i) own += costs[i];
    }
    if (all > 0) line += Format("; %.0f %% of the computing", 100 * own / all);
    PrintLine(line);
  }
  const PipelineSchedule schedule = MakePipelineSchedule(
      config.schedule, stages, static_cast<int>(recipe.engine.batch.accumulation_steps),
      static_cast<int>(config.virtual_stages));
  const SimulatedRun run =
      all > 0 ? Simulate(schedule, {.chunks = TimesOf(parts, static_cast<size_t>(stages), costs)})
              : SimulateEvenly(schedule);
  PrintLine(DrawText(schedule, run, kPlanColumns));
  if (all > 0) CompareSchedules(recipe, *data.train, costs);
  if (recipe.run.pipeline_svg.empty()) return;
  PredictionWriter file(recipe.run.pipeline_svg);
  file.Write(DrawSvg(schedule, run));
  file.Finish();
}

}  // namespace dslaunch
