#include "trainer/resume/run_start.h"

#include "base/count.h"
#include "base/text/sanitize.h"
#include "trainer/base/format.h"
#include "trainer/base/train_error.h"
#include "trainer/optim/optimizer.h"
#include "trainer/weights/config_json.h"

namespace dslaunch {
namespace {

// Returns the reason why the data does not continue after the checkpoint's last sample; empty if
// the data continues there.
std::string WhyDataStartsOver(const ResumeSource& source, const Recipe& recipe,
                              int64_t train_samples) {
  const Manifest& manifest = source.checkpoint.manifest;
  const auto differs = [](const std::string& what, int64_t theirs, int64_t own) {
    return "its " + what + " is " + std::to_string(theirs) + ", this run's is " +
           std::to_string(own);
  };
  if (source.is_foreign()) {
    const int64_t own = recipe.engine.batch.train_batch_size;
    if (manifest.train_batch_size == own) return "";
    return manifest.train_batch_size == 0 ? "it does not say its batch size"
                                          : differs("batch size", manifest.train_batch_size, own);
  }
  if (manifest.train_samples != train_samples) {
    return differs("number of training samples", manifest.train_samples, train_samples);
  }
  if (manifest.seed != recipe.run.seed) {
    return differs("seed", static_cast<int64_t>(manifest.seed),
                   static_cast<int64_t>(recipe.run.seed));
  }
  if (manifest.shuffle.value_or(recipe.data.shuffle) != recipe.data.shuffle) {
    return "its data.shuffle is another";
  }
  return "";
}

std::string ProgramText(const ResumeSource& source) {
  const Manifest& manifest = source.checkpoint.manifest;
  std::string text = source.is_foreign() ? source.program : "dslaunch";
  if (manifest.zero_stage > 0) text += ", ZeRO " + std::to_string(manifest.zero_stage);
  if (manifest.world_size > 0) {
    text += ", " + Count(static_cast<size_t>(manifest.world_size), "rank");
  }
  return text;
}

}  // namespace

RunStart::RunStart(const Recipe& recipe, ProcessGroup& group, int64_t train_samples)
    : recipe_(recipe), trains_(train_samples > 0) {
  try {
    source_ = OpenResumeSource(recipe.run.resume_from, group);
    CheckConfigJson(recipe.model, recipe.run.resume_from);
    notes_ = source_.notes;
    weights_only_ = recipe.run.load_module_only || !trains_ || !source_.has_optimizer();
    if (!weights_only_) PlaceInData(train_samples);
  } catch (const TrainError&) {
    group.Finish();  // all ranks throw, so no rank may report another as lost
    throw;
  }
}

void RunStart::PlaceInData(int64_t train_samples) {
  const Manifest& manifest = source_.checkpoint.manifest;
  position_.step = manifest.position.step;
  samples_seen_ = manifest.samples_seen;
  if (samples_seen_ == 0) samples_seen_ = position_.step * manifest.train_batch_size;
  const std::string why = WhyDataStartsOver(source_, recipe_, train_samples);
  if (!why.empty()) {
    data_ = "the data starts over, because " + why;
    return;
  }
  if (source_.is_foreign()) {
    position_.epoch = samples_seen_ / train_samples;
    position_.samples_in_epoch = samples_seen_ % train_samples;
  } else {
    position_ = manifest.position;
  }
  data_ = Format("the data continues after %lld samples of epoch %lld",
                 static_cast<long long>(position_.samples_in_epoch),
                 static_cast<long long>(position_.epoch + 1));
}

void RunStart::Load(EngineCore& engine) {
  if (!weights_only_) CheckSameOptimizer(source_, engine, "--load_module_only to take its weights");
  LoadSource(source_, recipe_.model.family().Names(),
             {.weights_only = weights_only_, .adapters_only = recipe_.lora.has_value()}, engine,
             notes_);
}

std::string RunStart::reason() const {
  const Manifest& manifest = source_.checkpoint.manifest;
  const std::string from = source_.checkpoint.folder + " (" + ProgramText(source_) + ")";
  std::string text;
  if (!trains_) {
    text = "weights from " + from;
  } else if (weights_only_) {
    text = "starting at step 1 with the weights of " + from;
    if (!recipe_.run.load_module_only) text += ", which has no optimizer state";
  } else {
    text = "resuming after step " + std::to_string(position_.step) + " from " + from +
           ": weights, state of " + OptimizerTypeName(recipe_.engine.optimizer->type) + " after " +
           Count(static_cast<size_t>(manifest.optimizer_updates), "update");
    if (!recipe_.engine.scheduler.name.empty()) {
      text += ", " + recipe_.engine.scheduler.name + " after " +
              Count(static_cast<size_t>(manifest.scheduled_updates), "step");
    }
    const bool scales =
        recipe_.engine.precision.loss_scaler && recipe_.engine.precision.loss_scaler->dynamic;
    if (scales && manifest.loss_scaler.iteration > 0) {
      text += Format(", loss scale %g", manifest.loss_scaler.scale);
    }
    text += "; " + data_;
  }
  text += JoinedNotes(notes_);
  return SanitizeForTerminal(text);
}

}  // namespace dslaunch
