#include "base/count.h"
#include "trainer/base/format.h"
#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class CheckpointHook : public TrainHook {
 public:
  void AfterStep(TrainRun& run, int64_t step) override {
    if (!run.schedule.SavesAfter(step)) return;
    if (run.bad_steps == 0) return run.Save(step);
    // A checkpoint of a diverged state could replace the last good checkpoints in the folder, so
    // none is saved.
    run.log.Warning(Format("no checkpoint after step %lld: the last %s made no update",
                           static_cast<long long>(step),
                           Count(static_cast<size_t>(run.bad_steps), "step").c_str()));
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe) {
  if (recipe.run.checkpoint_dir.empty()) return nullptr;
  return std::make_unique<CheckpointHook>();
}

}  // namespace dslaunch
