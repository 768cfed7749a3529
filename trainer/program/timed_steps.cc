#include "trainer/program/timed_steps.h"

#include <algorithm>
#include <memory>

#include "trainer/comm/numbers.h"
#include "trainer/device/device_memory.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/engine/engine_memory.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/prepare.h"
#include "trainer/train/report.h"
#include "trainer/train/schedule.h"
#include "trainer/train/step.h"
#include "trainer/train/train_batches.h"
#include "trainer/train/window.h"

namespace dslaunch {
namespace {

// Combines the results of the ranks: the mean of their losses, and the maximum of their memory.
// Collective.
void Combine(const ProcessGroup& group, TimedSteps& timed) {
  const std::vector<std::vector<double>> ranks =
      GatherNumbers(group, RankWindow{.loss = timed.last_loss,
                                      .seconds = static_cast<double>(timed.peak_bytes),
                                      .diverged = {},
                                      .memory = timed.memory}
                               .Numbers());
  std::vector<RankWindow> windows;
  timed.peak_bytes = 0;
  for (const std::vector<double>& numbers : ranks) {
    windows.push_back(RankWindow::FromNumbers(numbers.data(), static_cast<int>(windows.size())));
    timed.peak_bytes = std::max(timed.peak_bytes, static_cast<int64_t>(windows.back().seconds));
  }
  const AllWindows all = Combine(windows);
  timed.last_loss = all.loss;
  timed.memory = all.memory;
}

}  // namespace

TimedSteps TimeSteps(const Recipe& recipe, const Dataset& data, const ProcessGroup& group,
                     const std::function<void(const StepInfo&, int64_t total_steps)>& report) {
  const Schedule schedule =
      MakeSchedule(recipe, data.size(), recipe.engine.MeshOf(group.world_size()).data);
  Recipe fitted = recipe;
  FitToRun(fitted.engine.scheduler, schedule.total_steps);
  // Created before the model, so that the model's memory is measured too.
  const ActivationMeter meter;
  const bool on_cpu = group.device().is_cpu();
  if (!on_cpu) RestartDevicePeak(group.device());
  const std::unique_ptr<TrainingModel> training_model =
      PrepareTrainingModel(fitted, OneSample(data), group, /*load=*/nullptr);
  BatchLoader batches = TrainBatches(recipe, data, *training_model, schedule);
  training_model->SetTrain(true);
  TimedSteps timed;
  for (int64_t step = 1; step <= schedule.total_steps; ++step) {
    const Clock::time_point start = Clock::now();
    const StepOutcome outcome = TrainStep(*training_model, batches, recipe.run, step);
    const StepInfo info = ReadSteps(*training_model, {outcome})[0];
    timed.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    timed.samples.push_back(info.samples);
    timed.last_loss = info.loss;
    timed.skipped += info.skipped ? 1 : 0;
    report(info, schedule.total_steps);
  }
  timed.peak_bytes = on_cpu ? meter.peak_bytes() : DevicePeakBytes(group.device());
  timed.memory = ToBytes(training_model->core().memory(), /*peak_rss=*/0);
  Combine(group, timed);
  return timed;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace dslaunch
