#include "trainer/program/compare.h"

#include <algorithm>

#include "dslaunch/process_group.h"
#include "trainer/base/log.h"
#include "trainer/data/dataset.h"
#include "trainer/program/compare_table.h"
#include "trainer/program/timed_steps.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/prepare.h"
#include "trainer/train/report.h"

namespace dslaunch {
namespace {

PrecisionResult ResultOf(const TimedSteps& timed, const EngineConfig& engine, const Dataset& data) {
  PrecisionResult result = {.precision = DtypeName(engine.precision.model)};
  result.step_s = Median(timed.seconds);
  result.per_s =
      static_cast<double>(timed.samples.back() * std::max<int64_t>(data.tokens_per_sample(), 1)) /
      result.step_s;
  result.loss = timed.last_loss;
  result.skipped = timed.skipped;
  result.peak_bytes = timed.peak_bytes;
  result.memory = timed.memory;
  return result;
}

}  // namespace

void ComparePrecision(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device) {
  const DataSplits data = OpenData(recipe.data, recipe.model.needs());
  StatusPipe status(env.status_fd);
  ProcessGroup group(env, device, GroupOptions(recipe.run));
  CheckSameData(data.train.get(), nullptr, group);
  status.Ready();
  std::vector<PrecisionResult> results;
  const auto precisions = static_cast<int64_t>(recipe.engines.size());
  for (const EngineConfig& engine : recipe.engines) {
    Recipe one = recipe;
    one.engine = engine;
    const auto done = static_cast<int64_t>(results.size());
    const TimedSteps timed =
        TimeSteps(one, *data.train, group, [&](const StepInfo& info, int64_t total_steps) {
          status.Step({.event = StatusLine::Event::kStep,
                       .step = done * total_steps + info.step,
                       .total_steps = precisions * total_steps,
                       .loss = info.loss,
                       .samples_per_s = {}});
        });
    results.push_back(ResultOf(timed, engine, *data.train));
  }
  if (group.rank() == 0) {
    PrintLine(PrecisionTable(results, data.train->tokens_per_sample() > 0 ? "tokens" : "samples"));
  }
  group.Barrier();  // waits longer for rank 0 than Finish does
  group.Finish();
}

}  // namespace dslaunch
