#include "trainer/checkpoint/checkpointer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "base/text/sanitize.h"
#include "trainer/base/crc32.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/choose_together.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/checkpoint/memory_copies.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/numbers.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {
namespace {

ResumeRequest MakeRequest(const std::string& resume, const WorkerEnv& env,
                          const std::string& started_by) {
  ResumeRequest request;
  request.kind = resume == "auto"   ? ResumeRequest::Kind::kAuto
                 : resume == "none" ? ResumeRequest::Kind::kNone
                                    : ResumeRequest::Kind::kTag;
  request.tag = resume;
  request.job_id = env.job_id;
  request.restarted = env.attempt > 1;
  request.started_by = started_by;
  return request;
}

// Returns a key of the recipe and the options that concern the start of a run. A later command with
// the same key continues the same run. Returns "" without such options.
std::string StartKey(const Recipe& recipe) {
  const std::string& other = recipe.run.resume_from;
  const std::string& resume = other.empty() ? recipe.run.resume : other;
  if (!recipe.run.load_module_only && resume != "none" && other.empty()) return "";
  char digest[9];
  std::snprintf(digest, sizeof digest, "%08x",
                Crc32(recipe.identity.data(), recipe.identity.size()));
  return (recipe.run.load_module_only ? "weights of " + resume
          : other.empty()             ? "nothing"
                                      : "state of " + other) +
         ", recipe " + digest;
}

std::string NewRunId() {
  std::random_device random;
  char id[17];
  std::snprintf(id, sizeof id, "%08x%08x", random(), random());
  return id;
}

// Returns the name of the recipe's optimizer; "" if the program provides the optimizer.
std::string OptimizerType(const Recipe& recipe) {
  return recipe.engine.optimizer ? OptimizerTypeName(recipe.engine.optimizer->type) : "";
}

// Returns the names of this rank's weights and buffers that have an element that is inf or nan.
// Masks and sentinels may contain such elements on purpose.
std::set<std::string> NonFinite(const EngineCore& engine, bool adapters_only) {
  std::set<std::string> names;
  for (const TensorPart& part : engine.ModelState()) {
    if (adapters_only && !IsAdapterTensor(part.name)) continue;
    if (!part.tensor.is_floating_point() || part.tensor.numel() == 0) continue;
    const at::Tensor largest = at::linalg_vector_norm(part.tensor, INFINITY);
    if (!std::isfinite(largest.item<double>())) names.insert(part.name);
  }
  return names;
}

// Runs `action`. If it throws, which happens on all ranks, leaves the group before rethrowing.
// Other ranks would otherwise report this rank as lost.
void LeaveOnFailure(ProcessGroup& group, const std::function<void()>& action) {
  try {
    action();
  } catch (const TrainError&) {
    group.Finish();
    throw;
  }
}

}  // namespace

void DescribeRun(const Recipe& recipe, const WorkerEnv& env, int64_t train_samples,
                 const Position& position, int64_t samples_seen, Manifest& manifest) {
  manifest.job_id = env.job_id;
  manifest.position = position;
  manifest.seed = recipe.run.seed;
  manifest.shuffle = recipe.data.shuffle;
  manifest.train_samples = train_samples;
  manifest.samples_seen = samples_seen;
  manifest.model = recipe.model_text;
}

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group,
                           int64_t train_samples, MemoryCopies* memory)
    : recipe_(recipe),
      env_(env),
      group_(&group),
      train_samples_(train_samples),
      memory_(memory),
      folder_(recipe.run.checkpoint_dir),
      started_by_(StartKey(recipe)) {
  LeaveOnFailure(group, [&] {
    std::string notes;
    Together([&] {
      if (env_.rank == 0) notes = TakeFolder();
    });
    Choose();
    Together([&] {
      if (recipe_.run.load_module_only && recipe_.run.resume_from.empty()) TakeWeightsOnly();
      CheckFits();
    });
    NameTags();
    decision_.reason += notes;
  });
  if (!from_memory()) saved_step_ = start().step;
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

// Takes the folder's lease; called on rank 0 only. Returns notes for the user, as clauses that
// begin with "; ".
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

bool Checkpointer::from_memory() const { return memory_ != nullptr && memory_->found() != nullptr; }

// Returns the decision for the newest copy in memory; nullopt if there is no copy or the best
// checkpoint in the folder is of a later step. Reads only the folder's manifests, not its files.
// Collective.
std::optional<ResumeDecision> Checkpointer::ChooseFromMemory(
    const ResumeRequest& request, const CheckpointFolder::Listing& listing) {
  if (memory_ == nullptr || env_.attempt == 1) return std::nullopt;
  const std::vector<Checkpoint> order = OrderCandidates(request, listing.whole);
  const Manifest* const disk = order.empty() ? nullptr : &order.front().manifest;
  // Ranks may see different files until a network file system is consistent, so the newest step of
  // all ranks counts.
  double newest = 0;
  for (const std::vector<double>& rank :
       GatherNumbers(*group_, {disk == nullptr ? 0 : static_cast<double>(disk->position.step)})) {
    newest = std::max(newest, rank[0]);
  }
  const Checkpoint* const copy = memory_->Find(*group_, static_cast<int64_t>(newest) - 1);
  if (copy == nullptr) return std::nullopt;
  // The copies of other ranks have other run ids, and rank 0 commits, so rank 0 decides.
  const bool is_saved = disk != nullptr && disk->run_id == copy->manifest.run_id;
  const double saved = is_saved ? static_cast<double>(disk->position.step) : 0;
  saved_step_ = static_cast<int64_t>(GatherNumbers(*group_, {saved})[0][0]);
  return ResumeDecision{ResumeDecision::Kind::kResume, *copy, memory_->reason()};
}

void Checkpointer::Choose() {
  // A run with run.resume_from continues only from its own checkpoints, so checkpoints of other
  // runs are excluded.
  const bool starts_elsewhere = !weights_only_ && !recipe_.run.resume_from.empty();
  decision_ = ChooseTogether(
      folder_,
      [&](const CheckpointFolder::Listing& listing, const CheckpointFolder::Judge& judge) {
        const ResumeRequest request =
            MakeRequest(starts_elsewhere ? "none" : recipe_.run.resume, env_, started_by_);
        const std::optional<ResumeDecision> copy = ChooseFromMemory(request, listing);
        return copy ? *copy : folder_.Choose(request, listing, judge);
      },
      *group_);
  if (!starts_elsewhere || found()) return;
  std::string& reason = decision_.reason;
  reason.replace(0, std::min(reason.find(';'), reason.size()),
                 "no checkpoint of this run in " + folder_.path() + " yet");
}

// Runs `action`. If `action` fails on any rank, every rank throws.
void Checkpointer::Together(const std::function<void()>& action) const {
  ThrowFirstFailure(GatherTexts(*group_, FailureOf(action)));
}

// Restricts the start to the checkpoint's weights, unless the checkpoint is of this run. A
// checkpoint is of this run if a restarted job saved it, or if it is of a run that the same command
// started.
void Checkpointer::TakeWeightsOnly() {
  if (!decision_.checkpoint) {
    if (decision_.kind == ResumeDecision::Kind::kFresh) {
      throw TrainError(ExitCode::kBadInput, "run.load_module_only (--load_module_only): there is " +
                                                std::string("no checkpoint in ") + folder_.path());
    }
    return;
  }
  if (env_.attempt > 1 && decision_.checkpoint->manifest.job_id == env_.job_id) return;
  if (decision_.checkpoint->manifest.started_by == started_by_) return;
  weights_only_ = true;
  decision_.reason.replace(0, decision_.reason.find(" from "),
                           "starting at step 1 with the weights only");
}

// Chooses the run id and the tags of this run's checkpoints, and adds the reason to
// decision_.reason. Collective.
void Checkpointer::NameTags() {
  if (goes_on()) {
    const Manifest& manifest = decision_.checkpoint->manifest;
    run_id_ = manifest.run_id;
    if (!started_by_.empty() && manifest.started_by == started_by_) {
      decision_.reason += std::string(
          "; this command started the run, which continues (for another "
          "run give another --checkpoint_dir)");
    }
    started_by_ = manifest.started_by;
  } else {
    run_id_ = NewRunId();
  }
  // The folder may change meanwhile, and each rank has drawn another run id, so rank 0 decides.
  const std::string own = env_.rank == 0 ? TagSuffix(folder_.List().whole, run_id_,
                                                     goes_on() ? &*decision_.checkpoint : nullptr)
                                         : "";
  tag_suffix_ = GatherTexts(*group_, own)[0];
  const bool is_new = !goes_on() || !decision_.checkpoint->tag.ends_with(tag_suffix_);
  if (!tag_suffix_.empty() && is_new) {
    decision_.reason +=
        "; the folder has checkpoints of another run, so this run's are named "
        "like " +
        TagOf(start().step + 1) + tag_suffix_;
  }
}

// Throws if the saved position would select other samples in this run than when it was saved, or if
// the optimizer differs.
void Checkpointer::CheckFits() const {
  if (!goes_on()) return;
  const Checkpoint& found = *decision_.checkpoint;
  // A checkpoint that was converted from another program does not describe the data, so the data is
  // not compared.
  const bool knows_data = found.manifest.train_samples > 0;
  const auto differ = [&](const std::string& what, const std::string& hint) {
    throw TrainError(ExitCode::kBadInput, found.folder + " was saved with " + what + "; " + hint +
                                              ", or --load_module_only to start at step 1 with "
                                              "its weights, or --resume none to start without");
  };
  if (knows_data && found.manifest.seed != recipe_.run.seed) {
    const std::string seed = std::to_string(found.manifest.seed);
    differ("the seed " + seed + ", this run has " + std::to_string(recipe_.run.seed),
           "give --seed " + seed);
  }
  if (knows_data && found.manifest.train_samples != *train_samples_) {
    differ(std::to_string(found.manifest.train_samples) + " training samples, " +
               DataName(recipe_.data) + " has " + std::to_string(*train_samples_),
           "give the same data");
  }
  // The order of the data may change at the start of an epoch, but not within it.
  const bool shuffle = recipe_.data.shuffle;
  if (found.manifest.position.samples_in_epoch > 0 &&
      found.manifest.shuffle.value_or(shuffle) != shuffle) {
    differ(std::string("data.shuffle ") + (shuffle ? "false" : "true") +
               " in the middle of a pass over the data, this run has " +
               (shuffle ? "true" : "false"),
           std::string("set data.shuffle=") + (shuffle ? "false" : "true"));
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
  if (from_memory()) {
    memory_->Restore(engine);
  } else if (decision_.checkpoint) {
    RestoreState(*decision_.checkpoint,
                 {.weights_only = !goes_on(), .adapters_only = recipe_.lora.has_value()}, engine);
  }
  if (train_samples_) never_finite_ = NonFinite(engine, recipe_.lora.has_value());
}

void Checkpointer::CheckFinite(const EngineCore& engine, int64_t step) const {
  Together([&] {
    for (const std::string& name : NonFinite(engine, recipe_.lora.has_value())) {
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

void Checkpointer::Save(const EngineCore& engine, const Position& position, int64_t samples_seen,
                        std::optional<double> loss) {
  if (position.step == saved_step_) return;
  Wait();  // waits because the background save must complete even if this save throws
  CheckFinite(engine, position.step);
  CheckpointContent content = CaptureState(engine, *group_, recipe_.lora.has_value());
  DescribeRun(recipe_, env_, *train_samples_, position, samples_seen, content.manifest);
  Identify(content.manifest);
  content.manifest.loss = loss;
  if (!writer_) {
    writer_ = std::make_unique<CheckpointWriter>(*group_, folder_, SaveScope(env_));
  }
  const std::string tag = TagAt(position.step);
  if (recipe_.run.async_save) {
    writer_->SaveInBackground(content, tag, recipe_.run.keep_checkpoints);
  } else {
    writer_->Save(content, tag, recipe_.run.keep_checkpoints);
  }
  saved_step_ = position.step;
}

void Checkpointer::Identify(Manifest& manifest) const {
  manifest.run_id = run_id_;
  manifest.started_by = started_by_;
  manifest.adapters = adapters_;
}

std::string Checkpointer::TagAt(int64_t step) const { return TagOf(step) + tag_suffix_; }

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
