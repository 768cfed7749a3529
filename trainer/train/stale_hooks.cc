#include "trainer/train/hook_makers.h"

namespace dslaunch {
namespace {

bool IsServer(const Recipe& recipe, const WorkerEnv& env) {
  return recipe.engine.parallel.staleness && env.rank < recipe.engine.parallel.servers;
}

bool MeetAfter(const TrainRun& run, int64_t step) {
  return run.schedule.SavesAfter(step) || run.schedule.EvaluatesAfter(step);
}

class MeetHook : public TrainHook {
 public:
  void AtStart(TrainRun& run) override {
    run.stale->HoldAfter(run.schedule.NextMeeting(run.schedule.first_step));
  }
  void AfterStep(TrainRun& run, int64_t step) override {
    if (MeetAfter(run, step)) run.stale->Meet(step);
  }
};

class GoOnHook : public TrainHook {
 public:
  void AfterStep(TrainRun& run, int64_t step) override {
    if (MeetAfter(run, step) && !run.stop) run.stale->HoldAfter(run.schedule.NextMeeting(step));
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeMeetHook(const Recipe& recipe, const WorkerEnv& env) {
  if (!IsServer(recipe, env)) return nullptr;
  return std::make_unique<MeetHook>();
}

std::unique_ptr<TrainHook> MakeGoOnHook(const Recipe& recipe, const WorkerEnv& env) {
  if (!IsServer(recipe, env)) return nullptr;
  return std::make_unique<GoOnHook>();
}

}  // namespace dslaunch
