#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class MeetHook : public TrainHook {
 public:
  void AtStart(TrainRun& run) override {
    run.stale->HoldAfter(run.schedule.NextMeeting(run.schedule.first_step));
  }
  void AfterStep(TrainRun& run, int64_t step) override {
    if (run.schedule.MeetsAfter(step)) run.stale->Meet(step);
  }
};

class GoOnHook : public TrainHook {
 public:
  void AfterStep(TrainRun& run, int64_t step) override {
    if (run.schedule.MeetsAfter(step) && !run.stop)
      run.stale->HoldAfter(run.schedule.NextMeeting(step));
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeMeetHook() { return std::make_unique<MeetHook>(); }

std::unique_ptr<TrainHook> MakeGoOnHook() { return std::make_unique<GoOnHook>(); }

}  // namespace dslaunch
