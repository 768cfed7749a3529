#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class ProgressHook : public TrainHook {
 public:
  void AtStart(TrainRun& run) override { run.progress.Start(run.schedule, run.samples_seen); }

  void AfterResults(TrainRun& run, int64_t, const std::vector<StepInfo>& steps) override {
    for (const StepInfo& step : steps) run.progress.AddStep(step);
    known_ = !steps.empty();
  }

  void BeforeExchange(TrainRun& run, RankWindow& own) override {
    const RankWindow window = run.progress.Window();
    own.loss = window.loss;
    own.seconds = window.seconds;
    own.diverged = window.diverged;
    own.bad_steps = window.bad_steps;
    own.memory = run.Memory();
  }

  void AfterExchange(TrainRun& run, const AllWindows& all, int64_t) override {
    run.progress.EndWindow(all);
  }

  void AfterStep(TrainRun& run, int64_t) override {
    if (known_) run.progress.WriteStatus();
  }

 private:
  bool known_ = false;  // true if the results of the newest step have been read
};

}  // namespace

std::unique_ptr<TrainHook> MakeProgressHook() { return std::make_unique<ProgressHook>(); }

}  // namespace dslaunch
