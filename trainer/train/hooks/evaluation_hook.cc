#include "trainer/base/format.h"
#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class EvaluationHook : public TrainHook {
 public:
  // Evaluates on the test data. Skips the last step, because every run ends with an evaluation
  // (train.cc).
  void AfterStep(TrainRun& run, int64_t step) override {
    if (!run.schedule.EvaluatesAfter(step) || step == run.schedule.total_steps) return;
    if (run.stop || run.data.test == nullptr) return;
    run.EvaluateOnTestData(step, Format("step %lld: test", static_cast<long long>(step)));
    run.training_model.SetTrain(true);
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeEvaluationHook(const Recipe& recipe) {
  if (!recipe.run.eval_every) return nullptr;
  return std::make_unique<EvaluationHook>();
}

}  // namespace dslaunch
