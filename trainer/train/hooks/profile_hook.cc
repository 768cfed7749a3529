#include "trainer/base/rank_files.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/engine/engine_memory.h"
#include "trainer/profile/step_profiler.h"
#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/report.h"

namespace dslaunch {
namespace {

class ProfileHook : public TrainHook {
 public:
  ProfileHook(const RunConfig& config, const WorkerEnv& env)
      : profiler_({.steps = config.profile.value_or(ProfileConfig()),
                   .table = config.profile.has_value(),
                   .trace_folder = config.trace,
                   .rank_dir = RankDir(),
                   .rank = env.rank,
                   .world_size = env.world_size,
                   .device = [this] { return run_->group.device(); },
                   .backend = [this] { return Backend(); },
                   .add_memory = [this](ProfileResult& result) { AddMemory(result); }}) {}

  void AtStart(TrainRun& run) override { run_ = &run; }
  void BeforeStep(TrainRun& run, int64_t step) override { profiler_.BeforeStep(Index(run, step)); }
  void AfterResults(TrainRun& run, int64_t step, const std::vector<StepInfo>&) override {
    profiler_.AfterStep(Index(run, step));
  }
  void AtEnd(TrainRun&) override { profiler_.Finish(); }

 private:
  // Returns the index of the step in this run, from 0.
  static int64_t Index(const TrainRun& run, int64_t step) {
    return step - run.schedule.first_step - 1;
  }

  std::string Backend() const {
    const ProcessGroup& group = run_->group;
    return group.c10d_group()->getBackend(group.device().type())->getBackendName();
  }

  void AddMemory(ProfileResult& result) const {
    const MemoryUse& use = run_->training_model.core().memory_at_backward();
    result.memory = ToBytes(use, PeakRssBytes());
    result.allocated = use.allocated;
  }

  const TrainRun* run_ = nullptr;
  ActivationMeter meter_;  // created before the model, so that the model's memory is measured too
  StepProfiler profiler_;
};

}  // namespace

std::unique_ptr<TrainHook> MakeProfileHook(const Recipe& recipe, const WorkerEnv& env) {
  if (!recipe.run.profile && recipe.run.trace.empty()) return nullptr;
  return std::make_unique<ProfileHook>(recipe.run, env);
}

}  // namespace dslaunch
