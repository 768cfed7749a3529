#include "trainer/program/compare.h"

#include <algorithm>
#include <functional>

#include "dslaunch/process_group.h"
#include "trainer/base/log.h"
#include "trainer/comm/numbers.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device_memory.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/engine/engine_memory.h"
#include "trainer/program/compare_table.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/prepare.h"
#include "trainer/train/report.h"
#include "trainer/train/schedule.h"
#include "trainer/train/step.h"
#include "trainer/train/train_batches.h"

namespace dslaunch {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Replaces what ranks have of their own: the mean of the losses, and the most memory of any.
void Combine(const ProcessGroup& group, PrecisionResult& result) {
  const MemoryBytes own = result.memory;
  const std::vector<std::vector<double>> ranks =
      GatherNumbers(group, RankWindow{.loss = result.loss,
                                      .seconds = static_cast<double>(result.peak_bytes),
                                      .diverged = {},
                                      .memory = own}
                               .Numbers());
  std::vector<RankWindow> windows;
  result.peak_bytes = 0;
  for (const std::vector<double>& numbers : ranks) {
    windows.push_back(RankWindow::FromNumbers(numbers.data(), static_cast<int>(windows.size())));
    result.peak_bytes = std::max(result.peak_bytes, static_cast<int64_t>(windows.back().seconds));
  }
  const AllWindows all = Combine(windows);
  result.loss = all.loss;
  result.memory = all.memory;
}

// `report` gets each step, and how many there are.
PrecisionResult TrainIn(const Recipe& recipe, const Dataset& data, const ProcessGroup& group,
                        const std::function<void(const StepInfo&, int64_t total)>& report) {
  const ActivationMeter meter;  // from before the model on
  const bool on_cpu = group.device().is_cpu();
  if (!on_cpu) RestartDevicePeak(group.device());
  const std::unique_ptr<TrainingModel> training_model =
      PrepareTrainingModel(recipe, OneSample(data), group, /*load=*/nullptr);
  const Schedule schedule =
      MakeSchedule(recipe, data.size(), training_model->replicas().world_size());
  BatchLoader batches = TrainBatches(recipe, data, *training_model, schedule);
  training_model->SetTrain(true);
  PrecisionResult result = {.precision = DtypeName(recipe.engine.precision.model)};
  std::vector<double> seconds;
  int64_t samples = 0;
  for (int64_t step = 1; step <= schedule.total_steps; ++step) {
    const Clock::time_point start = Clock::now();
    const StepOutcome outcome = TrainStep(*training_model, batches, recipe.run, step);
    const StepInfo info = ReadSteps(*training_model, {outcome})[0];
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    samples = info.samples;
    result.loss = info.loss;
    result.skipped += info.skipped ? 1 : 0;
    report(info, schedule.total_steps);
  }
  result.step_s = Median(std::move(seconds));
  result.per_s =
      static_cast<double>(samples * std::max<int64_t>(data.tokens_per_sample(), 1)) / result.step_s;
  result.peak_bytes = on_cpu ? meter.peak_bytes() : DevicePeakBytes(group.device());
  result.memory = ToBytes(training_model->core().memory(), /*peak_rss=*/0);
  Combine(group, result);
  return result;
}

}  // namespace

void ComparePrecision(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const DataSplits data = OpenData(recipe.data, recipe.model.needs());
  StatusPipe status(env.status_fd);
  ProcessGroup group(env, device, GroupOptions(recipe.run));
  CheckSameData(data.train.get(), nullptr, group);
  status.Ready();
  std::vector<PrecisionResult> results;
  const auto precisions = static_cast<int64_t>(recipe.engines.size());
  for (const EngineConfig& engine : recipe.engines) {
    Recipe one = recipe;
    one.engine = engine;
    const int64_t replicas = engine.MeshOf(group.world_size()).data;
    FitToRun(one.engine.scheduler, MakeSchedule(one, data.train->size(), replicas).total_steps);
    const auto done = static_cast<int64_t>(results.size());
    results.push_back(
        TrainIn(one, *data.train, group, [&](const StepInfo& info, int64_t total_steps) {
          status.Step({.event = StatusLine::Event::kStep,
                       .step = done * total_steps + info.step,
                       .total_steps = precisions * total_steps,
                       .loss = info.loss,
                       .samples_per_s = {}});
        }));
  }
  if (group.rank() == 0) {
    PrintLine(PrecisionTable(results, data.train->tokens_per_sample() > 0 ? "tokens" : "samples"));
  }
  group.Barrier();  // Barrier waits longer for rank 0 than Finish
  group.Finish();
}

}  // namespace dslaunch
