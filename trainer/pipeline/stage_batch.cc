#include "trainer/pipeline/stage_batch.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dslaunch/recompute.h"
#include "trainer/base/seed.h"
#include "trainer/base/train_error.h"
#include "trainer/pipeline/layer_run.h"

namespace dslaunch {
namespace {

// Returns the index of the last action that adds to gradients; nullopt if several actions complete
// them (with several chunks, or weight gradients that are computed later).
std::optional<size_t> LastBackward(const PipelineSchedule& schedule,
                                   const std::vector<Action>& actions) {
  if (schedule.virtual_stages > 1) return std::nullopt;
  std::optional<size_t> last;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind == ActionKind::kBackwardWeight) return std::nullopt;
    if (actions[i].kind == ActionKind::kBackward) last = i;
  }
  return last;
}

// Returns `tensors` as leaves of autograd, as if another stage had sent them.
Tensors Detached(const Tensors& tensors) {
  Tensors detached;
  for (const at::Tensor& tensor : tensors) {
    detached.push_back(tensor.detach().set_requires_grad(tensor.requires_grad()));
  }
  return detached;
}

}  // namespace

StagePlan::StagePlan(PipelineSchedule made, int stage)
    : schedule(std::move(made)), deferred_sends(DeferredSendsAfter(schedule, stage)) {}

StageBatch::StageBatch(const Stage& stage, const StagePlan& plan, BatchPurpose purpose,
                       const MicroBatchSource& next)
    : stage_(stage),
      plan_(plan),
      purpose_(purpose),
      next_(next),
      step_(stage.core.global_steps()),
      engine_(stage.core) {}

void StageBatch::Run() {
  const at::AutoGradMode gradients(trains());
  const std::vector<Action>& actions =
      plan_.schedule.actions[static_cast<size_t>(stage_.place.stage)];
  const std::optional<size_t> last_backward = LastBackward(plan_.schedule, actions);
  engine_.Begin(trains());
  for (size_t i = 0; i < actions.size(); ++i) {
    Do(actions[i], i == last_backward);
    for (const ChunkPlace& reader : plan_.deferred_sends[i])
      stage_.link.SendRest(Channel(reader, /*gradient=*/false));
  }
  if (!trains()) engine_.End();
  stage_.link.Drain();
}

void StageBatch::Do(const Action& action, bool last_backward) {
  const ChunkPlace after = After(plan_.schedule, {stage_.place.stage, action.chunk});
  switch (action.kind) {
    case ActionKind::kForward:
      return Forward(action);
    case ActionKind::kBackward:
      return Backward(action, last_backward);
    case ActionKind::kBackwardInput: {
      const DeferWeightGradients defer(PassageOf(action).weights);
      return Backward(action, /*last=*/false);
    }
    case ActionKind::kBackwardWeight:
      engine_.BeforeBackward(/*last=*/false);
      PassageOf(action).weights.Compute();
      return engine_.AfterBackward();
    case ActionKind::kSendActivation:
      CheckSendable(action, PassageOf(action).outputs);
      stage_.link.Send(Channel(after, /*gradient=*/false), PassageOf(action).outputs,
                       MessageOf(action));
      PassageOf(action).outputs.clear();
      if (!trains()) passages_.erase({action.chunk, action.micro_batch});
      return;
    case ActionKind::kReceiveActivation:
      return stage_.link.BeginReceive(Channel({action.peer, action.chunk}, /*gradient=*/false),
                                      MessageOf(action));
    case ActionKind::kSendGradient:
      stage_.link.Send(Channel({action.peer, action.chunk}, /*gradient=*/true),
                       PassageOf(action).input_gradients, MessageOf(action));
      PassageOf(action).input_gradients.clear();
      return;
    case ActionKind::kReceiveGradient:
      return stage_.link.BeginReceiveGradients(Channel(after, /*gradient=*/true),
                                               PassageOf(action).layout, MessageOf(action));
    case ActionKind::kReduceTied:
    case ActionKind::kReduceData:
      return;  // the optimizer's step does this work
    case ActionKind::kStep:
      engine_.End();
      return engine_.Step();
  }
}

// Returns the context for messages, such as "stage 1, the loss of micro-batch 3 of 8".
std::string StageBatch::Where(const std::string& what, const Action& action) const {
  return "stage " + std::to_string(stage_.place.stage) + ", " + what + " of micro-batch " +
         std::to_string(action.micro_batch + 1) + " of " +
         std::to_string(plan_.schedule.micro_batches);
}

LinkChannel StageBatch::Channel(const ChunkPlace& other, bool gradient) const {
  return {stage_.core.ranks().RankOfStage(other.stage), gradient, other.chunk};
}

void StageBatch::Forward(const Action& action) {
  const ChunkPlace place{stage_.place.stage, action.chunk};
  Tensors inputs = InputsFor(action);
  Tensors outputs = RunChunk(action, inputs);
  if (trains() && !IsFirst(place)) PassageOf(action).inputs = std::move(inputs);
  if (IsLast(plan_.schedule, place)) {
    EndModel(action, outputs);
  } else {
    Leave(action, std::move(outputs));
  }
}

Tensors StageBatch::InputsFor(const Action& action) {
  const ChunkPlace place{stage_.place.stage, action.chunk};
  if (!IsFirst(place)) {
    const ChunkPlace before = Before(plan_.schedule, place);
    if (before.stage == stage_.place.stage) return std::exchange(PassageOf(action).inputs, {});
    return stage_.link.FinishReceive(Channel({before.stage, action.chunk}, /*gradient=*/false));
  }
  MicroBatch batch = Next(action);
  if (batch.inputs.empty()) {
    RefuseInput(Where("the source returned no inputs", action) +
                "; it must return a micro-batch on each call");
  }
  for (at::Tensor& input : batch.inputs) input = stage_.core.ToModelDtype(OnDevice(input));
  if (plan_.schedule.stages == 1) targets_[action.micro_batch] = std::move(batch.targets);
  return std::move(batch.inputs);
}

at::Tensor StageBatch::OnDevice(const at::Tensor& tensor) const {
  const c10::Device device = stage_.core.group().device();
  return tensor.defined() && !device.is_cpu() ? tensor.to(device, /*non_blocking=*/true) : tensor;
}

MicroBatch StageBatch::Next(const Action& action) {
  try {
    return next_();
  } catch (...) {
    RethrowFrom(Where("the source", action));
  }
}

uint64_t StageBatch::SeedOf(const Action& action, size_t layer) const {
  return LayerSeed(MicroBatchSeed(stage_.seed, step_ + 1, action.micro_batch, stage_.place.replica),
                   layer);
}

Tensors StageBatch::RunChunk(const Action& action, Tensors tensors) const {
  const AutocastScope autocast = stage_.core.Autocast();
  const size_t layers = stage_.chunks[static_cast<size_t>(action.chunk)].size();
  if (!trains() || stage_.recompute_interval == 0) {
    return RunLayers(action, 0, layers, std::move(tensors));
  }
  const auto interval = static_cast<size_t>(stage_.recompute_interval);
  for (size_t from = 0; from < layers; from += interval) {
    const size_t to = std::min(from + interval, layers);
    tensors = Recompute([this, action, from,
                         to](const Tensors& inputs) { return RunLayers(action, from, to, inputs); },
                        tensors, stage_.buffers);
  }
  return tensors;
}

Tensors StageBatch::RunLayers(const Action& action, size_t from, size_t to, Tensors tensors) const {
  const std::optional<ExchangeWatch> watch =
      trains() ? std::make_optional(engine_.Watch(/*forward=*/true)) : std::nullopt;
  BorrowedGenerator generator(stage_.core.group().device());
  const std::vector<StageLayer>& layers = stage_.chunks[static_cast<size_t>(action.chunk)];
  for (size_t i = from; i < to; ++i) {
    generator.Seed(SeedOf(action, layers[i].index));
    tensors = layers[i].forward(tensors);
  }
  return tensors;
}

void StageBatch::Leave(const Action& action, Tensors outputs) {
  Passage& passage = PassageOf(action);
  if (trains()) {
    passage.layout = LayoutOf(outputs);
    for (const at::Tensor& output : outputs) {
      if (!output.requires_grad()) continue;
      passage.roots.push_back(torch::autograd::impl::gradient_edge(output));
    }
  }
  const ChunkPlace after = After(plan_.schedule, {stage_.place.stage, action.chunk});
  if (after.stage == stage_.place.stage) {
    passages_[{after.chunk, action.micro_batch}].inputs = Detached(outputs);
  } else {
    passage.outputs = std::move(outputs);
  }
}

void StageBatch::EndModel(const Action& action, const Tensors& outputs) {
  if (purpose_ == BatchPurpose::kInfer) {
    outputs_ = outputs;
    return;
  }
  Tensors targets = plan_.schedule.stages == 1
                        ? std::move(targets_.extract(action.micro_batch).mapped())
                        : Next(action).targets;
  for (at::Tensor& target : targets) target = OnDevice(target);
  try {
    const at::Tensor loss = Loss(action, outputs, targets);
    if (trains()) {
      const at::Tensor root = engine_.Root(loss);
      Passage& passage = PassageOf(action);
      passage.roots = {torch::autograd::impl::gradient_edge(root)};
      passage.output_gradients = {at::ones_like(root)};
    }
    const at::Tensor number = loss.detach().to(at::kDouble).reshape({});
    loss_sum_ = loss_sum_.defined() ? loss_sum_ + number : number;
  } catch (...) {
    RethrowFrom(Where("the loss", action));
  }
}

at::Tensor StageBatch::Loss(const Action& action, const Tensors& outputs,
                            const Tensors& targets) const {
  BorrowedGenerator generator(stage_.core.group().device());
  generator.Seed(SeedOf(action, kLossLayer));
  const AutocastScope autocast = stage_.core.Autocast();
  if (stage_.loss) return stage_.loss(outputs, targets);
  if (targets.empty())
    RefuseInput("the source returned no targets, but the default loss needs one");
  return CrossEntropy(outputs[0], targets[0]);
}

void StageBatch::CheckSendable(const Action& action, const Tensors& outputs) const {
  const c10::Device device = stage_.core.group().device();
  for (const at::Tensor& output : outputs) {
    if (output.layout() == at::kStrided && output.device() == device) continue;
    const StageLayer& layer = stage_.chunks[static_cast<size_t>(action.chunk)].back();
    RefuseInput("stage " + std::to_string(stage_.place.stage) + ", " + layer.name +
                ": its output is " + c10::str(output.layout(), " on ", output.device()) +
                "; stages exchange dense tensors on the device of their rank, " + device.str());
  }
}

void StageBatch::Backward(const Action& action, bool last) {
  Passage& passage = PassageOf(action);
  const Tensors gradients = OutputGradients(action);
  // If no output requires a gradient, there is no backward pass during which gradients could be
  // exchanged, so the pass is not announced as the last one.
  const bool any = !passage.roots.empty();
  engine_.BeforeBackward(last && any);
  try {
    if (any) {
      const ExchangeWatch watch = engine_.Watch(/*forward=*/false);
      torch::autograd::Engine::get_default_engine().execute(
          std::exchange(passage.roots, {}), gradients, /*keep_graph=*/false,
          /*create_graph=*/false, /*accumulate_grad=*/true);
    }
  } catch (...) {
    RethrowFrom(Where("the backward pass", action));
  }
  engine_.AfterBackward();
  for (const at::Tensor& input : std::exchange(passage.inputs, {})) {
    if (!input.requires_grad()) continue;
    passage.input_gradients.push_back(input.grad().defined() ? input.grad()
                                                             : at::zeros_like(input));
  }
}

// Returns the gradients of the chunk's outputs that require a gradient.
Tensors StageBatch::OutputGradients(const Action& action) {
  const ChunkPlace place{stage_.place.stage, action.chunk};
  if (IsLast(plan_.schedule, place)) return std::exchange(PassageOf(action).output_gradients, {});
  const ChunkPlace after = After(plan_.schedule, place);
  if (after.stage != stage_.place.stage)
    return stage_.link.FinishReceive(Channel(after, /*gradient=*/true));
  return std::exchange(passages_[{after.chunk, action.micro_batch}].input_gradients, {});
}

}  // namespace dslaunch
