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
    constexpr int64_t kEvery = 10;  // interval in steps between two lines if steps_per_print is 0
    const int64_t every = run.schedule.print_every > 0 ? run.schedule.print_every : kEvery;
    due_ |= step % every == 0;
    // The sum has no steps until results are read from the GPU, so the line waits for them.
    if (!due_ || sum_.steps == 0) return;
    due_ = false;
    run.log.Result(BreakdownLine(step, sum_.times, sum_.compute_s, sum_.seconds, sum_.steps));
    sum_ = {};
  }

 private:
  // Sums of the durations of the steps since the last printed line.
  struct Sum {
    PhaseTimes times;
    double compute_s = 0;
    double seconds = 0;
    int64_t steps = 0;
  };
  Sum sum_;
  bool due_ = false;  // true if a line is printed with the next results
};

}  // namespace

std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe) {
  if (!recipe.engine.wall_clock_breakdown) return nullptr;
  return std::make_unique<BreakdownHook>();
}

}  // namespace dslaunch
