#include "trainer/train/train_loop.h"

#include <utility>

#include "trainer/train/step.h"
#include "trainer/train/train_batches.h"

namespace dslaunch {
namespace {

template <class... Parameters, class... Arguments>
void Call(const TrainHooks& hooks, void (TrainHook::*event)(Parameters...), TrainRun& run,
          Arguments&&... arguments) {
  for (const std::unique_ptr<TrainHook>& hook : hooks) (hook.get()->*event)(run, arguments...);
}

// Combines the ranks' windows: their losses into one number, and their stop requests into one
// decision. Collective.
AllWindows ExchangeWindows(TrainRun& run, const TrainHooks& hooks, int64_t steps) {
  RankWindow own;
  own.stop = run.OwnStopRequest();
  Call(hooks, &TrainHook::BeforeExchange, run, own);
  const AllWindows all = run.Exchange(own);
  if (all.diverged) run.LeaveDiverged(*all.diverged);
  Call(hooks, &TrainHook::AfterExchange, run, all, steps);
  run.stop = all.stop;
  run.bad_steps = all.bad_steps;
  return all;
}

}  // namespace

int64_t TrainSteps(TrainRun& run, TrainHooks hooks) {
  const Schedule& schedule = run.schedule;
  const bool on_cpu = run.group.device().is_cpu();
  BatchLoader batches = TrainBatches(run.recipe, *run.data.train, run.training_model, schedule);
  run.training_model.SetTrain(true);
  Call(hooks, &TrainHook::AtStart, run);

  std::vector<StepOutcome> unread;  // outcomes of the steps whose results have not been read
  int64_t step = schedule.first_step;
  int64_t exchanged = step;  // last step after which the ranks exchanged their windows
  int64_t interval = 0;      // number of steps between the last exchange and the next
  while (step < schedule.total_steps && !run.stop) {
    ++step;
    Call(hooks, &TrainHook::BeforeStep, run, step);
    unread.push_back(TrainStep(run.training_model, batches, run.recipe.run, step));
    Call(hooks, &TrainHook::AfterSubmit, run, step, unread.back());

    const bool exchanges = schedule.ExchangesAfter(step) || step >= exchanged + interval;
    std::vector<StepInfo> results;
    // Reading results from a GPU leaves the GPU idle, so they are read only when the ranks exchange
    // them.
    if (exchanges || on_cpu) results = ReadSteps(run.training_model, std::exchange(unread, {}));
    Call(hooks, &TrainHook::AfterResults, run, step, results);

    if (exchanges) {
      const int64_t steps = step - std::exchange(exchanged, step);
      const double step_s = ExchangeWindows(run, hooks, steps).seconds / static_cast<double>(steps);
      // An exchange makes the host wait for the GPU, so the exchanges are about a second apart on
      // GPUs.
      interval = StepsUntilExchange(interval, on_cpu ? step_s : step_s / 10);
    }
    Call(hooks, &TrainHook::AfterStep, run, step);
  }
  run.data_wait_s = batches.waited_s();
  Call(hooks, &TrainHook::AtEnd, run);
  return step;
}

}  // namespace dslaunch
