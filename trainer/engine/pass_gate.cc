#include "trainer/engine/pass_gate.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <exception>

#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/engine/engine_parts.h"

namespace dslaunch {
namespace {

// Throws TrainError with the text of `error` if `error` reports a read of parameters that were not
// gathered.
void RefuseIfNotGathered(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  if (IsNotGathered(text)) RefuseInput(text);
}

}  // namespace

int64_t PassGate::accumulation_steps() const { return engine_.config.batch.accumulation_steps; }

// Returns the device whose work is timed. With cuda_graph, recorded work on the device cannot be
// timed, so the result is the CPU.
c10::Device PassGate::timed() const {
  return engine_.config.cuda_graph ? c10::Device(c10::kCPU) : engine_.ranks->world().device();
}

bool PassGate::Trains() const { return at::GradMode::is_enabled() && engine_.module.is_training(); }

bool PassGate::AtBoundary() const { return (micro_steps_ + 1) % accumulation_steps() == 0; }

void PassGate::PrepareToTrain() {
  if (must_end_) {
    RefuseInput(
        "a backward pass of this engine has thrown, and the other ranks of its tensor_group wait "
        "for its exchanges: let the exception end the rank");
  }
  for (const auto& [name, tensor] : engine_.frozen) {
    if (!tensor.requires_grad()) continue;
    RefuseInput("the parameter " + name +
                " requires a gradient, but was frozen when the engine was made, so it would not "
                "be trained; unfreeze it before Initialize, or make a new engine");
  }
  if (gives_up_) GiveUp();
}

void PassGate::BeforeForward() {
  if (passes_ == Passes::kBatches) {
    RefuseInput(
        "this engine has one stage of a pipeline: train with PipelineEngine::TrainBatch, which "
        "runs all of them");
  }
  const bool trains = Trains();
  if (!trains && in_pass_) {
    ++nested_passes_;
    return;
  }
  if (trains) PrepareToTrain();
  engine_.step->states().Begin(!trains                                ? Pass::kInference
                               : AtBoundary() && no_sync_scopes_ == 0 ? Pass::kSync
                                                                      : Pass::kAccumulate);
  if (!trains) return;
  in_pass_ = true;
  nested_passes_ = 0;
  unsynced_ = no_sync_scopes_ > 0;
  graph_retained_ = false;
  engine_.memory.BeginPass();
  if (micro_steps_ % accumulation_steps() == 0) compute_ = {};
  compute_.Begin(timed());
  watch_.emplace(engine_.guard.Watch(/*forward=*/true));
}

void PassGate::AfterForward() {
  if (nested_passes_ > 0) {
    --nested_passes_;
  } else if (in_pass_) {
    watch_.reset();
    forward_done_ = true;
  } else {
    engine_.step->states().End();
  }
}

// At ZeRO stage 3, ending the states' pass may wait for other ranks, so it stays open until the
// next pass begins.
void PassGate::AbandonForward() {
  if (nested_passes_ > 0) {
    --nested_passes_;
  } else {
    watch_.reset();
    in_pass_ = forward_done_ = false;
  }
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const c10::Error& error) {
      RefuseIfNotGathered(error);
    } catch (...) {
      // Other exceptions are left to the caller, so nothing is thrown here.
    }
  }
}

void PassGate::CheckBackward(const at::Tensor& loss) const {
  if (!engine_.module.is_training()) {
    RefuseInput("Backward was called while the model is in evaluation mode: call SetTrain first");
  }
  if (backward_done_) {
    RefuseInput(
        "Backward was called twice without Step: call Step after each Backward; it makes an "
        "update on the last micro-batch of a step only. For several losses of one forward pass "
        "set BackwardOptions::retain_graph in all calls but the last; for several forward passes "
        "of one micro-batch run all but the last within NoSync()");
  }
  if (!forward_done_) {
    RefuseInput(
        "Backward was called without a forward pass through the engine: call engine.Forward, "
        "with gradients enabled, rather than the model's own forward");
  }
  CheckLoss(loss);
}

void PassGate::CheckLoss(const at::Tensor& loss) const {
  if (loss.numel() != 1) {
    RefuseInput("Backward needs a scalar, but the loss has " + std::to_string(loss.numel()) +
                " elements: use its mean");
  }
  if (!loss.requires_grad()) {
    RefuseInput(
        "the loss does not depend on any parameter that is trained: it was detached, or computed "
        "without gradients");
  }
}

// Returns the root of the backward pass of one of `parts` micro-batches: loss * loss scale / parts.
// Keeps the loss for messages.
at::Tensor PassGate::ScaledLoss(const at::Tensor& loss, int64_t parts) {
  if (graph_retained_ && !losses_.empty()) {  // if the loss is another one of the same micro-batch
    losses_.back() = losses_.back() + loss.detach();
  } else {
    losses_.push_back(loss.detach());
  }
  return loss.to(at::promote_types(loss.scalar_type(), at::kFloat)) *
         (engine_.step->loss_scale() / static_cast<double>(parts));
}

void PassGate::Backward(const at::Tensor& loss, const BackwardOptions& options) {
  CheckBackward(loss);
  engine_.memory.BeginBackward();
  const at::Tensor root = ScaledLoss(loss, options.scale_by_steps ? accumulation_steps() : 1);
  // Callbacks run after all gradients are complete, in the order in which they were queued. This
  // callback is queued at the root, before the reducer's callback, so the time excludes the
  // reducer's wait for other ranks.
  root.register_hook([this](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { compute_.End(); });
  });
  graph_retained_ = options.retain_graph;
  must_end_ = engine_.ranks->tensor() != nullptr;
  OrStartStepOver([&] {
    engine_.step->states().BeforeBackward(/*last=*/AtBoundary() && !unsynced_ &&
                                          !options.retain_graph);
    {
      const ExchangeWatch watch = engine_.guard.Watch(/*forward=*/false);
      root.backward(/*gradient=*/{}, options.retain_graph);
    }
    engine_.step->states().AfterBackward();
    if (!options.retain_graph) engine_.step->states().End();
  });
  must_end_ = false;
  if (options.retain_graph) {  // if another Backward of the same graph follows
    compute_.Begin(timed());
    return;
  }
  in_pass_ = forward_done_ = false;
  backward_done_ = !unsynced_;
}

void PassGate::ZeroGrad() {
  if (!gives_up_) engine_.step->states().DropGradients();
  backward_done_ = false;
  losses_.clear();
}

bool PassGate::Step() {
  if (no_sync_scopes_ > 0) {
    RefuseInput(
        "Step was called within NoSync, where gradients are not averaged over the ranks: leave its "
        "scope and run Forward and Backward once more before Step");
  }
  if (graph_retained_) {
    RefuseInput(
        "Step was called after a Backward with retain_graph, which announces another Backward of "
        "the same forward pass: call the last one without retain_graph");
  }
  if (!backward_done_) {
    RefuseInput(
        "Step was called without Backward: call Backward(loss) before it; one within NoSync does "
        "not count");
  }
  backward_done_ = false;
  const bool boundary = AtBoundary();
  if (boundary) OrStartStepOver([&] { MakeStep(); });
  ++micro_steps_;
  return boundary;
}

void PassGate::BeginNoSync() {
  if (passes_ == Passes::kBatches) {
    RefuseInput("NoSync has no meaning in a pipeline: TrainBatch exchanges gradients once a batch");
  }
  ++no_sync_scopes_;
}

void PassGate::BeginBatch(bool trains) {
  if (trains) {
    PrepareToTrain();
    StartStepOver();
  }
  engine_.step->states().Begin(trains ? Pass::kSync : Pass::kInference);
  if (trains) engine_.memory.BeginPass();
}

at::Tensor PassGate::Root(const at::Tensor& loss) {
  CheckLoss(loss);
  return ScaledLoss(loss, accumulation_steps());
}

void PassGate::StepBatch() {
  MakeStep();
  micro_steps_ += accumulation_steps();
  gives_up_ = false;
}

void PassGate::CountReplay() {
  compute_ = {};  // unknown, because the passes of a replay are not timed
  micro_steps_ += accumulation_steps();
}

void PassGate::Resume(int64_t steps) {
  StartStepOver();
  GiveUp();
  micro_steps_ = steps * accumulation_steps();
}

void PassGate::MakeStep() {
  engine_.step->Make(losses_);
  losses_.clear();
}

// Makes the next micro-batch the first of its step. Dropping the gradients and an open pass may
// wait for other ranks, so GiveUp drops them only before the next training pass.
void PassGate::StartStepOver() {
  in_pass_ = forward_done_ = backward_done_ = graph_retained_ = false;
  gives_up_ = true;
  losses_.clear();
  micro_steps_ -= micro_steps_ % accumulation_steps();
}

void PassGate::GiveUp() {
  engine_.step->states().GiveUp();
  gives_up_ = false;
}

void PassGate::OrStartStepOver(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    StartStepOver();
    RefuseIfNotGathered(error);
    throw;
  } catch (...) {
    StartStepOver();
    throw;
  }
}

}  // namespace dslaunch
