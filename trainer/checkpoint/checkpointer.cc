#include "trainer/checkpoint/checkpointer.h"

#include <cstdio>
#include <random>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/engine_state.h"
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

}  // namespace

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env, int64_t train_samples)
    : recipe_(recipe),
      env_(env),
      train_samples_(train_samples),
      folder_(recipe.run.checkpoint_dir) {
  std::vector<std::string> removed;
  if (env_.rank == 0) removed = folder_.Prepare();
  decision_ = folder_.Choose(MakeRequest(recipe.run.resume, env));
  if (recipe.run.load_module_only) TakeWeightsOnly();
  for (const std::string& name : removed) {
    decision_.reason += "; removed " + name + ", left by an interrupted save";
  }
  saved_step_ = start().step;
  run_id_ = goes_on() ? decision_.checkpoint->manifest.run_id : NewRunId();
  CheckFits();
}

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env)
    : recipe_(recipe), env_(env), folder_(recipe.run.checkpoint_dir), weights_only_(true) {
  decision_ = folder_.Choose(MakeRequest(recipe.run.resume, env));
}

// A job that is started again goes on from what it has saved itself.
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

// What would make the position mean other samples than those it stands for.
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
               recipe_.data.path + " has " + std::to_string(*train_samples_),
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

void Checkpointer::Agree(ProcessGroup& group) const {
  try {
    AgreeOnChoice(decision_, folder_.path(), group);
  } catch (const TrainError&) {
    group.Finish();  // so that no rank takes another's leaving for a loss
    throw;
  }
}

void Checkpointer::Load(EngineCore& engine) const {
  if (!decision_.checkpoint) return;
  RestoreState(*decision_.checkpoint, {.weights_only = !goes_on()}, engine);
}

void Checkpointer::Save(const EngineCore& engine, const Position& position, int64_t samples_seen) {
  if (position.step == saved_step_) return;
  CheckpointContent content = CaptureState(engine);
  Manifest& manifest = content.manifest;
  manifest.run_id = run_id_;
  manifest.job_id = env_.job_id;
  manifest.position = position;
  manifest.seed = recipe_.run.seed;
  manifest.train_samples = *train_samples_;
  manifest.samples_seen = samples_seen;
  manifest.model = recipe_.model_text;
  if (!writer_) writer_ = std::make_unique<CheckpointWriter>(engine.group(), folder_);
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

}  // namespace dslaunch
