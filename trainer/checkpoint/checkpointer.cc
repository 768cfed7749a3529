#include "trainer/checkpoint/checkpointer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "base/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/choose_together.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {
namespace {

ResumeRequest MakeRequest(const std::string& resume, const WorkerEnv& env) {
  ResumeRequest request;
  request.kind = resume == "auto"   ? ResumeRequest::Kind::kAuto
                 : resume == "none" ? ResumeRequest::Kind::kNone
                                    : ResumeRequest::Kind::kTag;
  request.tag = resume;
  request.job_id = env.job_id;
  request.restarted = env.attempt > 1;
  return request;
}

std::string NewRunId() {
  std::random_device random;
  char id[17];
  std::snprintf(id, sizeof id, "%08x%08x", random(), random());
  return id;
}

// Empty where the program, not the recipe, gives it.
std::string OptimizerType(const Recipe& recipe) {
  return recipe.engine.optimizer ? OptimizerTypeName(recipe.engine.optimizer->type) : "";
}

// Names of weights and buffers of this rank with an element that is inf or nan. Masks and sentinels
// may be so on purpose.
std::set<std::string> NonFinite(const EngineCore& engine) {
  std::set<std::string> names;
  for (const TensorPart& part : engine.ModelState()) {
    if (!part.tensor.is_floating_point() || part.tensor.numel() == 0) continue;
    const at::Tensor largest = at::linalg_vector_norm(part.tensor, INFINITY);
    if (!std::isfinite(largest.item<double>())) names.insert(part.name);
  }
  return names;
}

// All ranks throw what `action` throws. They leave the group before, so that none takes the leaving
// of another for a loss.
void LeaveOnFailure(ProcessGroup& group, const std::function<void()>& action) {
  try {
    action();
  } catch (const TrainError&) {
    group.Finish();
    throw;
  }
}

}  // namespace

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group,
                           int64_t train_samples)
    : recipe_(recipe),
      env_(env),
      group_(&group),
      train_samples_(train_samples),
      folder_(recipe.run.checkpoint_dir) {
  LeaveOnFailure(group, [&] {
    std::string notes;
    Together([&] {
      if (env_.rank == 0) notes = TakeFolder();
    });
    Choose();
    Together([&] {
      if (recipe_.run.load_module_only) TakeWeightsOnly();
      CheckFits();
    });
    decision_.reason += notes;
  });
  saved_step_ = start().step;
  run_id_ = goes_on() ? decision_.checkpoint->manifest.run_id : NewRunId();
}

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group)
    : recipe_(recipe),
      env_(env),
      group_(&group),
      folder_(recipe.run.checkpoint_dir),
      weights_only_(true) {
  LeaveOnFailure(group, [&] { Choose(); });
  std::string& reason = decision_.reason;
  const size_t verb = reason.find(found() ? " from " : ": ");
  reason.replace(0, verb, found() ? "weights" : "no weights");
}

// On rank 0. Returns what people are told of it, as clauses that begin with "; ".
std::string Checkpointer::TakeFolder() {
  folder_.Make();
  lease_ = std::make_shared<FolderLease>(
      folder_.path(), ThisProcess(env_.job_id, static_cast<int64_t>(env_.attempt)));
  folder_.UseLease(lease_);
  std::string notes;
  if (!lease_->taken_from().empty()) notes += "; took the folder over: " + lease_->taken_from();
  for (const std::string& name : folder_.RemoveLeftovers()) {
    notes += "; removed " + SanitizeForTerminal(name) + ", left by an interrupted save";
  }
  return notes;
}

void Checkpointer::Choose() {
  decision_ = ChooseTogether(
      folder_,
      [&](const CheckpointFolder::Listing& listing, const CheckpointFolder::Judge& judge) {
        return folder_.Choose(MakeRequest(recipe_.run.resume, env_), listing, judge);
      },
      *group_);
}

// If the action fails on one rank, every rank throws.
void Checkpointer::Together(const std::function<void()>& action) const {
  ThrowFirstFailure(GatherTexts(*group_, FailureOf(action)));
}

// A job whose ranks were started again resumes from its own checkpoints.
void Checkpointer::TakeWeightsOnly() {
  if (!decision_.checkpoint) {
    if (decision_.kind == ResumeDecision::Kind::kFresh) {
      throw TrainError(ExitCode::kBadInput, "run.load_module_only (--load_module_only): there is " +
                                                std::string("no checkpoint in ") + folder_.path());
    }
    return;
  }
  if (env_.attempt > 1 && decision_.checkpoint->manifest.job_id == env_.job_id) return;
  weights_only_ = true;
  decision_.reason.replace(0, decision_.reason.find(" from "),
                           "starting at step 1 with the weights only");
}

// Refuses a run in which the position would mean other samples than in the one that saved it.
void Checkpointer::CheckFits() const {
  if (!goes_on()) return;
  const Checkpoint& found = *decision_.checkpoint;
  const auto differ = [&](const std::string& what, const std::string& way_out) {
    throw TrainError(ExitCode::kBadInput, found.folder + " was saved with " + what + "; " +
                                              way_out + " or --resume none");
  };
  if (found.manifest.seed != recipe_.run.seed) {
    const std::string seed = std::to_string(found.manifest.seed);
    differ("the seed " + seed + ", this run has " + std::to_string(recipe_.run.seed),
           "give --seed " + seed);
  }
  if (found.manifest.train_samples != *train_samples_) {
    differ(std::to_string(found.manifest.train_samples) + " training samples, " +
               DataName(recipe_.data) + " has " + std::to_string(*train_samples_),
           "give the same data");
  }
  const std::string optimizer = OptimizerType(recipe_);
  if (!optimizer.empty() && !found.manifest.optimizer.empty() &&
      found.manifest.optimizer != optimizer) {
    differ("the optimizer " + found.manifest.optimizer + ", this run has " + optimizer,
           "use that optimizer");
  }
}

Position Checkpointer::start() const {
  return goes_on() ? decision_.checkpoint->manifest.position : Position{};
}

int64_t Checkpointer::samples_seen() const {
  return goes_on() ? decision_.checkpoint->manifest.samples_seen : 0;
}

void Checkpointer::Load(EngineCore& engine) {
  if (decision_.checkpoint) {
    RestoreState(*decision_.checkpoint, {.weights_only = !goes_on()}, engine);
  }
  if (train_samples_) never_finite_ = NonFinite(engine);
}

void Checkpointer::CheckFinite(const EngineCore& engine, int64_t step) const {
  Together([&] {
    for (const std::string& name : NonFinite(engine)) {
      if (never_finite_.contains(name)) continue;
      throw TrainError(ExitCode::kBadInput,
                       "training has diverged: " + name + " is not finite after step " +
                           std::to_string(step) + ", so this state is not saved" +
                           (saved_step_ == 0 ? ""
                                             : "; the newest checkpoint is that of step " +
                                                   std::to_string(saved_step_)) +
                           "; try a lower learning rate");
    }
  });
}

void Checkpointer::Save(const EngineCore& engine, const Position& position, int64_t samples_seen) {
  if (position.step == saved_step_) return;
  Wait();  // what it saves must not be lost if this throws
  CheckFinite(engine, position.step);
  CheckpointContent content = CaptureState(engine, *group_);
  Manifest& manifest = content.manifest;
  manifest.run_id = run_id_;
  manifest.job_id = env_.job_id;
  manifest.position = position;
  manifest.seed = recipe_.run.seed;
  manifest.train_samples = *train_samples_;
  manifest.samples_seen = samples_seen;
  manifest.model = recipe_.model_text;
  if (!writer_) {
    writer_ = std::make_unique<CheckpointWriter>(*group_, folder_, SaveScope(env_));
  }
  const std::string tag = TagOf(position.step);
  if (recipe_.run.async_save) {
    writer_->SaveInBackground(content, tag, recipe_.run.keep_checkpoints);
  } else {
    writer_->Save(content, tag, recipe_.run.keep_checkpoints);
  }
  saved_step_ = position.step;
}

void Checkpointer::Wait() {
  if (writer_) writer_->Wait();
}

void Checkpointer::Finish() {
  Wait();
  Together([&] {
    if (lease_) lease_->Release();
  });
}

}  // namespace dslaunch
