#include "trainer/train/step.h"

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

StepOutcome TrainStep(Trainee& trainee, BatchLoader& batches, const RunConfig& run, int64_t step) {
  const Clock::time_point start = Clock::now();
  const ProcessGroup& replicas = trainee.replicas();
  const int64_t parts = trainee.core().accumulation_steps();
  StepOutcome outcome;
  Trainee::Step plan = {.seed = run.seed, .number = step, .times = &outcome.times};
  const auto next = [&] {
    const Phase phase("data", outcome.times.data);
    return batches.Next();
  };
  std::deque<Batch> fetched;
  if (run.normalize_by_tokens) {
    for (int64_t part = 0; part < parts; ++part) fetched.push_back(next());
    plan.target_weight = WeightOfTarget(fetched, replicas);
  }
  StepFacts& facts = outcome.facts;
  facts.step = step;
  outcome.loss = trainee.Train(plan, [&] {
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
  outcome.grad_norm = core.grad_norm_there().clone();  // the next replay of a graph writes there
  facts.loss_scale = core.step_loss_scale();
  facts.skipped = core.skipped();
  facts.skip_reason = core.skip_reason();
  facts.compute_s = core.compute_s();
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return outcome;
}

std::vector<StepFacts> ReadSteps(Trainee& trainee, const std::vector<StepOutcome>& outcomes) {
  std::vector<at::Tensor> numbers;
  for (const StepOutcome& outcome : outcomes) {
    numbers.insert(numbers.end(), {outcome.loss, outcome.grad_norm.to(outcome.loss.device())});
  }
  std::vector<StepFacts> steps;
  if (outcomes.empty()) return steps;
  const at::Tensor read = at::stack(numbers).to(at::kCPU);
  const double* number = read.const_data_ptr<double>();
  for (const StepOutcome& outcome : outcomes) {
    StepFacts facts = outcome.facts;
    facts.loss = *number++;
    facts.grad_norm = *number++;
    if (!facts.skipped) {
      facts.skip_reason = trainee.core().SawGradNorm(facts.grad_norm);
      facts.skipped = !facts.skip_reason.empty();
    }
    steps.push_back(facts);
  }
  return steps;
}

}  // namespace dslaunch
