#include "trainer/profile/breakdown.h"
#include "trainer/train/hook_makers.h"

namespace dslaunch {
namespace {

class BreakdownHook : public TrainHook {
 public:
  void AfterSubmit(TrainRun&, int64_t, const StepOutcome& outcome) override {
    sum_.times += outcome.times;
    sum_.compute_s += outcome.info.compute_s;
    sum_.seconds += outcome.seconds;
    ++sum_.steps;
  }

  void AfterStep(TrainRun& run, int64_t step) override {
    constexpr int64_t kEvery = 10;  // if steps_per_print is 0
    const int64_t every = run.schedule.print_every > 0 ? run.schedule.print_every : kEvery;
    if (step % every != 0) return;
    run.log.Result(BreakdownLine(step, sum_.times, sum_.compute_s, sum_.seconds, sum_.steps));
    sum_ = {};
  }

 private:
  // Over the steps since the last line.
  struct Sum {
    PhaseTimes times;
    double compute_s = 0;
    double seconds = 0;
    int64_t steps = 0;
  };
  Sum sum_;
};

}  // namespace

std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe) {
  if (!recipe.engine.monitors.wall_clock_breakdown) return nullptr;
  return std::make_unique<BreakdownHook>();
}

}  // namespace dslaunch
