#include "trainer/checkpoint/checkpointer.h"

#include <cstdio>
#include <random>

#include "trainer/checkpoint/agreement.h"
#include "trainer/checkpoint/state.h"
#include "trainer/optim/optimizer.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr char kModelFile[] = "model.safetensors";
constexpr char kOptimizerPrefix[] = "optimizer/";
constexpr char kOptimizerFile[] = "optimizer.safetensors";

ResumeRequest MakeRequest(const std::string& resume, const WorkerEnv& env) {
  ResumeRequest request;
  request.kind = resume == "auto"   ? ResumeRequest::Kind::kAuto
                 : resume == "none" ? ResumeRequest::Kind::kNone
                                    : ResumeRequest::Kind::kTag;
  request.tag = resume;
  request.job_id = env.job_id;
  request.restarted = env.epoch > 1;
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

std::vector<NamedTensor> Whole(const std::vector<TensorPart>& parts) {
  std::vector<NamedTensor> tensors;
  for (const TensorPart& part : parts) tensors.push_back({part.name, part.tensor});
  return tensors;
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
  for (const std::string& name : removed) {
    decision_.reason += "; removed " + name + ", left by a save that was cut short";
  }
  saved_step_ = start().step;
  run_id_ = decision_.checkpoint ? decision_.checkpoint->manifest.run_id : NewRunId();
  CheckFits();
}

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env)
    : recipe_(recipe), env_(env), folder_(recipe.run.checkpoint_dir) {
  decision_ = folder_.Choose(MakeRequest(recipe.run.resume, env));
  if (!decision_.checkpoint) return;
  std::erase_if(decision_.checkpoint->manifest.tensors, [](const TensorRecord& tensor) {
    return tensor.name.starts_with(kOptimizerPrefix);
  });
}

// What would make the position mean other samples than those it stands for.
void Checkpointer::CheckFits() const {
  if (!decision_.checkpoint) return;
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
           "give the data it was trained on");
  }
  const std::string optimizer = OptimizerType(recipe_);
  if (!optimizer.empty() && !found.manifest.optimizer.empty() &&
      found.manifest.optimizer != optimizer) {
    differ("the optimizer " + found.manifest.optimizer + ", this run has " + optimizer,
           "give that one");
  }
}

Position Checkpointer::start() const {
  return decision_.checkpoint ? decision_.checkpoint->manifest.position : Position{};
}

int64_t Checkpointer::samples_seen() const {
  return decision_.checkpoint ? decision_.checkpoint->manifest.samples_seen : 0;
}

void Checkpointer::Agree(ProcessGroup& group) const {
  // Each rank fills its own place, so the sum is everybody's.
  const auto own = static_cast<size_t>(2 * group.rank());
  std::vector<double> values(2 * static_cast<size_t>(group.world_size()));
  const SeenCheckpoint seen = Seen(decision_);
  values[own] = seen.step;
  values[own + 1] = seen.identity;
  group.AllReduceSum(values);
  std::vector<SeenCheckpoint> all;
  for (size_t i = 0; i < values.size(); i += 2) all.push_back({values[i], values[i + 1]});
  std::string problem = Disagreement(folder_.path(), all);
  if (problem.empty() && decision_.kind == ResumeDecision::Kind::kRefused) {
    problem = decision_.reason;
  }
  if (problem.empty()) return;
  group.Finish();  // so that no rank takes another's leaving for a loss
  throw TrainError(ExitCode::kBadInput, problem);
}

void Checkpointer::Load(EngineCore& engine) const {
  if (!decision_.checkpoint) return;
  std::vector<NamedTensor> state = Whole(engine.ModelState());
  if (!train_samples_) {
    LoadState(*decision_.checkpoint, state);
    engine.WeightsChanged();
    return;
  }
  for (NamedTensor& item : Whole(engine.OptimizerState())) state.push_back(std::move(item));
  LoadState(*decision_.checkpoint, state);
  const LossScalerState& scaler = decision_.checkpoint->manifest.loss_scaler;
  engine.Resume({.steps = start().step,
                 .updates = decision_.checkpoint->manifest.optimizer_updates,
                 .loss_scale = scaler.scale,
                 .scaler_iteration = scaler.iteration,
                 .scaler_last_overflow = scaler.last_overflow,
                 .scaler_hysteresis = scaler.hysteresis});
}

void Checkpointer::Save(const EngineCore& engine, const Position& position, int64_t samples_seen) {
  if (env_.rank != 0 || position.step == saved_step_) return;
  Manifest manifest;
  manifest.run_id = run_id_;
  manifest.job_id = env_.job_id;
  manifest.position = position;
  const EngineProgress progress = engine.progress();
  manifest.optimizer_updates = progress.updates;
  manifest.optimizer = OptimizerType(recipe_);
  manifest.loss_scaler = {.scale = progress.loss_scale,
                          .iteration = progress.scaler_iteration,
                          .last_overflow = progress.scaler_last_overflow,
                          .hysteresis = progress.scaler_hysteresis};
  manifest.seed = recipe_.run.seed;
  manifest.train_samples = *train_samples_;
  manifest.samples_seen = samples_seen;
  manifest.world_size = env_.world_size;
  manifest.train_batch_size = recipe_.engine.batch.train_batch_size;
  const std::string tag = TagOf(position.step);
  const std::string begun = folder_.Begin(tag);
  WriteState(begun, kModelFile, Whole(engine.ModelState()), manifest);
  if (const auto state = Whole(engine.OptimizerState()); !state.empty()) {
    WriteState(begun, kOptimizerFile, state, manifest);
  }
  folder_.Commit(begun, tag, std::move(manifest), recipe_.run.keep_checkpoints);
  saved_step_ = position.step;
}

}  // namespace dslaunch
