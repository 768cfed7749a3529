#include <algorithm>
#include <cstdint>
#include <string>

#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/memory_room.h"

namespace dslaunch {
namespace {

class MemoryHook : public TrainHook {
 public:
  MemoryHook(const Recipe& recipe, const WorkerEnv& env)
      : every_(recipe.run.memory_checkpoint), env_(env) {}

  void AtStart(TrainRun& run) override {
    samples_ = run.samples_seen;
    on_ = HasRoomForCopies(run, env_);
  }

  // Waits for this rank's copy before the step after which other ranks begin their next copy. Until
  // then, the other ranks keep their previous copy, so a complete set of copies exists.
  void BeforeStep(TrainRun& run, int64_t step) override {
    if (on_ && step == last_ + std::max<int64_t>(every_ - 1, 1)) run.memory->Wait();
  }

  // Counts this run's samples, because run.progress counts them only when ranks exchange their
  // results.
  void AfterSubmit(TrainRun& run, int64_t step, const StepOutcome& outcome) override {
    samples_ += outcome.info.samples;
    // On a CPU, only the checksum of the copy remains to be computed. Waiting for the checksum
    // ensures that at most `every_` steps can be lost.
    if (on_ && step == last_ + 1 && run.group.device().is_cpu()) run.memory->Wait();
  }

  void AfterStep(TrainRun& run, int64_t step) override {
    if (on_) run.memory->NoteStep(step);
    // A copy of a diverged state could replace the last good copy, so none is made.
    if (!on_ || step % every_ != 0 || run.bad_steps > 0) return;
    // A rank that trains without waiting may be some steps ahead of ranks whose copies are not
    // complete, so it waits for all ranks.
    if (run.recipe.engine.TrainsApart()) {
      run.memory->Wait();
      run.group.Barrier();
    }
    EngineCore& core = run.training_model.core();
    run.memory->Begin(core, [&](Manifest& manifest, std::string& tag) {
      DescribeRun(run.recipe, env_, run.data.train->size(), run.schedule.PositionAfter(step),
                  samples_, manifest);
      if (run.checkpointer == nullptr) return;
      run.checkpointer->Identify(manifest);
      tag = run.checkpointer->TagAt(step);
    });
    last_ = step;
    if (run.recipe.engine.cuda_graph) {  // a replayed graph runs passes and update as one operation
      run.memory->HoldUpdate();
    } else {
      core.BeforeNextUpdate([&run] { run.memory->HoldUpdate(); });
    }
  }

  void AtEnd(TrainRun& run) override { run.memory->Wait(); }

 private:
  const int64_t every_;
  const WorkerEnv env_;
  bool on_ = false;
  int64_t last_ = -1;  // step of the last copy; -1 before the first copy
  int64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<TrainHook> MakeMemoryHook(const Recipe& recipe, const WorkerEnv& env) {
  if (recipe.run.memory_checkpoint == 0) return nullptr;
  return std::make_unique<MemoryHook>(recipe, env);
}

}  // namespace dslaunch
