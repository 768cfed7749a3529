#include "trainer/program/step.h"

#include <ATen/ATen.h>

#include "trainer/program/step_seed.h"

namespace dslaunch {
namespace {

constexpr int64_t kNoTarget = -100;

// How often each target's loss must be counted so that the mean over micro-batches and ranks
// becomes the mean over all targets of the step.
double WeightOfTarget(const std::vector<Batch>& batches, const ProcessGroup& group) {
  std::vector<double> count = {0};
  for (const Batch& batch : batches) {
    count[0] += static_cast<double>(batch.targets.ne(kNoTarget).sum().item<int64_t>());
  }
  group.AllReduceSum(count);
  return group.world_size() / std::max(count[0], 1.0);
}

}  // namespace

StepFacts TrainStep(Engine<Model>& engine, BatchLoader& batches, const ProcessGroup& group,
                    const RunConfig& run, int64_t step) {
  const int64_t parts = engine.core().accumulation_steps();
  const bool by_tokens = run.normalize_by_tokens;
  std::vector<Batch> fetched;
  double weight = 0;
  if (by_tokens) {
    for (int64_t part = 0; part < parts; ++part) fetched.push_back(batches.Next());
    weight = WeightOfTarget(fetched, group);
  }
  StepFacts facts;
  facts.step = step;
  for (int64_t part = 0; part < parts; ++part) {
    const Batch batch = by_tokens ? std::move(fetched[static_cast<size_t>(part)]) : batches.Next();
    at::manual_seed(MicroBatchSeed(run.seed, step, part, group.rank()));
    const at::Tensor output = engine.Forward(batch.inputs);
    at::Tensor loss;
    if (by_tokens) {
      const AutocastScope autocast = engine.core().Autocast();
      loss = engine.model().Loss(output, batch.targets, at::Reduction::Sum) * weight;
      facts.loss += loss.item<double>();
    } else {
      loss = engine.Loss(output, batch.targets);
      facts.loss += loss.item<double>() / static_cast<double>(parts);
    }
    engine.Backward(loss, /*scale_by_steps=*/!by_tokens);
    facts.samples += batch.targets.size(0) * group.world_size();
    engine.Step();
  }
  const EngineCore& core = engine.core();
  facts.lr = core.step_lr();
  facts.grad_norm = core.grad_norm();
  facts.loss_scale = core.step_loss_scale();
  facts.skipped = core.skipped();
  facts.skip_reason = core.skip_reason();
  facts.compute_s = core.compute_s();
  return facts;
}

}  // namespace dslaunch
