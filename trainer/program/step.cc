#include "trainer/program/step.h"

#include <ATen/ATen.h>

#include <deque>

namespace dslaunch {
namespace {

constexpr int64_t kNoTarget = -100;

// How often each target's loss must be counted so that the mean over micro-batches and replicas
// becomes the mean over all targets of the step.
double WeightOfTarget(const std::deque<Batch>& batches, const ProcessGroup& replicas) {
  std::vector<double> count = {0};
  for (const Batch& batch : batches) {
    count[0] += static_cast<double>(batch.targets.ne(kNoTarget).sum().item<int64_t>());
  }
  replicas.AllReduceSum(count);
  return replicas.world_size() / std::max(count[0], 1.0);
}

}  // namespace

StepFacts TrainStep(Trainee& trainee, BatchLoader& batches, const RunConfig& run, int64_t step,
                    PhaseTimes& times) {
  const ProcessGroup& replicas = trainee.replicas();
  const int64_t parts = trainee.core().accumulation_steps();
  Trainee::Step plan = {.seed = run.seed, .number = step, .times = &times};
  const auto next = [&] {
    const Phase phase("data", times.data);
    return batches.Next();
  };
  std::deque<Batch> fetched;
  if (run.normalize_by_tokens) {
    for (int64_t part = 0; part < parts; ++part) fetched.push_back(next());
    plan.target_weight = WeightOfTarget(fetched, replicas);
  }
  StepFacts facts;
  facts.step = step;
  facts.loss = trainee.Train(plan, [&] {
    Batch batch;
    if (fetched.empty()) {
      batch = next();
    } else {
      batch = std::move(fetched.front());
      fetched.pop_front();
    }
    facts.samples += batch.targets.size(0) * replicas.world_size();
    return batch;
  });
  const EngineCore& core = trainee.core();
  facts.lr = core.step_lr();
  facts.grad_norm = core.grad_norm();
  facts.loss_scale = core.step_loss_scale();
  facts.skipped = core.skipped();
  facts.skip_reason = core.skip_reason();
  facts.compute_s = core.compute_s();
  return facts;
}

}  // namespace dslaunch
