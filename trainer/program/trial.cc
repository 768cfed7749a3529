#include "trainer/program/trial.h"

#include <nlohmann/json.hpp>

#include "dslaunch/process_group.h"
#include "trainer/base/log.h"
#include "trainer/data/dataset.h"
#include "trainer/program/timed_steps.h"
#include "trainer/train/prepare.h"
#include "trainer/train/report.h"

namespace dslaunch {

void RunTrial(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const DataSplits data = OpenData(recipe.data, recipe.model.needs());
  StatusPipe status(env.status_fd);
  ProcessGroup group(env, device, GroupOptions(recipe.run));
  CheckSameData(data.train.get(), nullptr, group);
  status.Ready();
  const TimedSteps timed =
      TimeSteps(recipe, *data.train, group, [&](const StepInfo& info, int64_t total_steps) {
        status.Step({.event = StatusLine::Event::kStep,
                     .step = info.step,
                     .total_steps = total_steps,
                     .loss = info.loss,
                     .samples_per_s = {}});
      });
  if (group.rank() == 0) {
    PrintLine(nlohmann::ordered_json{
        {"trial",
         {{"step_s", timed.seconds}, {"samples", timed.samples}, {"peak_bytes", timed.peak_bytes}}}}
                  .dump());
  }
  group.Barrier();  // waits longer for rank 0 than Finish does
  group.Finish();
}

}  // namespace dslaunch
