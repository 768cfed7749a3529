#include "trainer/profile/breakdown.h"
#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class BreakdownHook : public TrainHook {
 public:
  void AfterResults(TrainRun&, int64_t, const std::vector<StepInfo>& steps) override {
    for (const StepInfo& step : steps) {
      sum_.times += step.times;
      sum_.compute_s += step.compute_s;
      sum_.seconds += step.seconds;
      ++sum_.steps;
    }
  }

  void AfterStep(TrainRun& run, int64_t step) override {
    constexpr int64_t kEvery = 10;  // interval in steps if steps_per_print is 0
    const int64_t every = run.schedule.print_every > 0 ? run.schedule.print_every : kEvery;
    due_ |= step % every == 0;
    // Without steps, the results of the GPU have not been read yet.
    if (!due_ || sum_.steps == 0) return;
    due_ = false;
    run.log.Result(BreakdownLine(step, sum_.times, sum_.compute_s, sum_.seconds, sum_.steps));
    sum_ = {};
  }

 private:
  // Sums of the times of the steps since the last line.
  struct Sum {
    PhaseTimes times;
    double compute_s = 0;
    double seconds = 0;
    int64_t steps = 0;
  };
  Sum sum_;
  bool due_ = false;  // true if the next results are printed
};

}  // namespace

std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe) {
  if (!recipe.engine.wall_clock_breakdown) return nullptr;
  return std::make_unique<BreakdownHook>();
}

}  // namespace dslaunch
