#include "trainer/train/train_hook.h"

#include <utility>

#include "trainer/train/hook_makers.h"

namespace dslaunch {

TrainHooks MakeTrainHooks(const Recipe& recipe, const WorkerEnv& env) {
  // Of several mistakes the first in this order is the one that is reported.
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
  const bool only_trains =
      recipe.engine.parallel.staleness && env.rank >= recipe.engine.parallel.servers;
  add(MakeMeetHook(recipe, env));
  if (!only_trains) {
    add(MakeCheckpointHook(recipe));
    add(MakeEvaluationHook(recipe));
  }
  add(MakeGoOnHook(recipe, env));
  return hooks;
}

}  // namespace dslaunch
