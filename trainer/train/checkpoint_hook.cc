#include "trainer/train/hook_makers.h"

namespace dslaunch {
namespace {

class CheckpointHook : public TrainHook {
 public:
  void AfterStep(TrainRun& run, int64_t step) override {
    if (run.schedule.SavesAfter(step)) run.Save(step);
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe) {
  if (recipe.run.checkpoint_dir.empty()) return nullptr;
  return std::make_unique<CheckpointHook>();
}

}  // namespace dslaunch
