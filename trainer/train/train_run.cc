#include "trainer/train/train_run.h"

#include "trainer/base/format.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/numbers.h"
#include "trainer/device/device_memory.h"
#include "trainer/engine/engine_memory.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/report.h"

namespace dslaunch {

StopRequest TrainRun::OwnStopRequest() const {
  if (stale != nullptr && !stale->is_server()) return StopRequest::kNone;
  return checkpointer != nullptr && checkpointer->failed() ? StopRequest::kSaveFailed
                                                           : CurrentStopRequest(deadline);
}

MemoryBytes TrainRun::Memory() const {
  MemoryBytes bytes = ToBytes(training_model.core().memory(), PeakRssBytes());
  if (tensors != nullptr) {
    const c10::Device device = group.device();
    bytes.tensors = device.is_cpu() ? tensors->peak_bytes() : DevicePeakBytes(device);
  }
  return bytes;
}

AllWindows TrainRun::Exchange(const RankWindow& own) const {
  std::vector<RankWindow> windows;
  for (const std::vector<double>& numbers : GatherNumbers(group, own.Numbers())) {
    windows.push_back(RankWindow::FromNumbers(numbers.data(), static_cast<int>(windows.size())));
  }
  return Combine(windows);
}

void TrainRun::Save(int64_t step) {
  if (checkpointer == nullptr) return;
  progress.Saving(step);
  LeaveOnFailure([&] {
    checkpointer->Save(training_model.core(), schedule.PositionAfter(step), progress.samples(),
                       progress.window_loss());
  });
  progress.Saved(step);
}

void TrainRun::LeaveDiverged(const Divergence& diverged) {
  FinishSaving();
  group.Finish();
  std::string message = DivergenceMessage(diverged);
  const int64_t saved = checkpointer == nullptr ? 0 : checkpointer->saved_step();
  if (saved > 0) {
    message +=
        Format("; the newest checkpoint is that of step %lld", static_cast<long long>(saved));
  }
  throw TrainError(
      ExitCode::kBadInput,
      message + "; try a lower learning rate" +
          (recipe.engine.gradient_clipping == 0 ? ", or gradient_clipping in the engine" : ""));
}

void TrainRun::FinishSaving() {
  if (checkpointer == nullptr) return;
  LeaveOnFailure([&] { checkpointer->Finish(); });
}

void TrainRun::LeaveOnFailure(const std::function<void()>& action) {
  try {
    action();
  } catch (const TrainError&) {
    group.Finish();  // all ranks throw, so no rank may report another as lost
    throw;
  }
}

void TrainRun::EvaluateOnTestData(int64_t step, const std::string& prefix) {
  if (data.test == nullptr) return log.Result(NoTestData(recipe.data));
  const Clock::time_point start = Clock::now();
  const Evaluation result = Evaluate(training_model, *data.test, group, metrics,
                                     recipe.data.prefetch, [this] { return OwnStopRequest(); });
  progress.LeaveOut(Clock::now() - start);
  stop = result.stop;
  if (stop) return;
  ReportEvaluation(result.sums, prefix, {step, progress.samples()}, {log, progress, monitors});
}

}  // namespace dslaunch
