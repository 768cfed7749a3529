#include <utility>

#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/train_hook.h"

namespace dslaunch {

TrainHooks MakeTrainHooks(const Recipe& recipe, const WorkerEnv& env) {
  // The first maker that throws decides which error is reported, so the replica check is made
  // first.
  std::unique_ptr<TrainHook> replica_check = MakeReplicaCheckHook(recipe);
  std::unique_ptr<TrainHook> flops = MakeFlopsHook(recipe, env);
  std::unique_ptr<TrainHook> profile = MakeProfileHook(recipe, env);

  TrainHooks hooks;
  const auto add = [&](std::unique_ptr<TrainHook> hook) {
    if (hook != nullptr) hooks.push_back(std::move(hook));
  };
  add(MakeRunInfoHook());
  add(MakeBreakdownHook(recipe));
  add(MakeProgressHook());
  add(std::move(profile));
  add(std::move(flops));
  add(MakeMonitorHook());
  add(MakeCommsHook(recipe));
  add(MakeEndReportHook());
  add(std::move(replica_check));
  const ParallelConfig& parallel = recipe.engine.parallel;
  // A rank that is not a server saves and evaluates nothing, so it needs no further hooks.
  if (parallel.staleness && env.rank >= parallel.servers) return hooks;
  if (parallel.staleness) add(MakeMeetHook());
  add(MakeMemoryHook(recipe, env));
  add(MakeCheckpointHook(recipe));
  add(MakeEvaluationHook(recipe));
  if (parallel.staleness) add(MakeGoOnHook());
  return hooks;
}

}  // namespace dslaunch
