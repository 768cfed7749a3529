#include "trainer/train/step.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>

#include "trainer/device/streams.h"
#include "trainer/nn/cross_entropy.h"

namespace dslaunch {
namespace {

// Returns the factor by which each target's loss is multiplied, so that the mean over micro-batches
// and replicas is the mean over all targets of the step. Collective over `replicas`.
double WeightOfTarget(const std::deque<Batch>& batches, const ProcessGroup& replicas) {
  std::vector<double> count = {0};
  for (const Batch& batch : batches) {
    count[0] += static_cast<double>(batch.targets.ne(kNoTarget).sum().item<int64_t>());
  }
  replicas.AllReduceSum(count);
  return replicas.world_size() / std::max(count[0], 1.0);
}

// Returns the numbers on the CPU. Waits for the device with an event, so that a profiler can
// distinguish this intended wait from others.
at::Tensor ReadFromDevice(const at::Tensor& numbers) {
  if (numbers.is_cpu()) return numbers;
  const at::Tensor read = CopyToPinned(numbers);
  c10::Event copied(numbers.device().type());
  copied.record(c10::impl::VirtualGuardImpl(numbers.device().type()).getStream(numbers.device()));
  copied.synchronize();
  return read;
}

}  // namespace

StepOutcome TrainStep(TrainingModel& training_model, BatchLoader& batches, const RunConfig& run,
                      int64_t step) {
  const ProcessGroup& replicas = training_model.replicas();
  const int64_t parts = training_model.core().accumulation_steps();
  StepOutcome outcome;
  outcome.whole.Begin(replicas.device());
  TrainingModel::Step plan = {.seed = run.seed, .number = step, .times = &outcome.times};
  const auto next = [&] {
    const Phase phase("data", outcome.times.data, c10::kCPU);
    return batches.Next();
  };
  std::deque<Batch> fetched;
  if (run.normalize_by_targets) {
    for (int64_t part = 0; part < parts; ++part) fetched.push_back(next());
    plan.target_weight = WeightOfTarget(fetched, replicas);
  }
  StepInfo& info = outcome.info;
  info.step = step;
  outcome.loss = training_model.Train(plan, [&] {
    Batch batch;
    if (fetched.empty()) {
      batch = next();
    } else {
      batch = std::move(fetched.front());
      fetched.pop_front();
    }
    info.samples += batch.targets.size(0) * replicas.world_size();
    return batch;
  });
  const EngineCore& core = training_model.core();
  info.lr = core.step_lr();
  // The next replay of a graph overwrites the norm, so the norm is copied.
  outcome.grad_norm = core.grad_norm_on_device().clone();
  info.loss_scale = core.step_loss_scale();
  info.skipped = core.skipped();
  info.skip_reason = core.skip_reason();
  outcome.compute = core.compute_time();
  outcome.whole.End();
  return outcome;
}

std::vector<StepInfo> ReadSteps(TrainingModel& training_model,
                                const std::vector<StepOutcome>& outcomes) {
  std::vector<at::Tensor> numbers;
  for (const StepOutcome& outcome : outcomes) {
    numbers.insert(numbers.end(), {outcome.loss, outcome.grad_norm.to(outcome.loss.device())});
  }
  std::vector<StepInfo> steps;
  if (outcomes.empty()) return steps;
  const at::Tensor read = ReadFromDevice(at::stack(numbers));
  const double* number = read.const_data_ptr<double>();
  for (const StepOutcome& outcome : outcomes) {
    StepInfo info = outcome.info;
    info.loss = *number++;
    info.grad_norm = *number++;
    info.compute_s = outcome.compute.Seconds();
    info.seconds = outcome.whole.Seconds();
    info.times = outcome.times.Seconds();
    if (!info.skipped) {
      info.skip_reason = training_model.core().ObserveGradNorm(info.grad_norm);
      info.skipped = !info.skip_reason.empty();
    }
    steps.push_back(info);
  }
  return steps;
}

}  // namespace dslaunch
