// Saves and loads checkpoints of the engine for users' programs. (`dslaunch train` uses
// Checkpointer instead.)
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/mutex.h"
#include "base/text/sanitize.h"
#include "dslaunch/engine.h"
#include "proto/contract/worker_env.h"
#include "trainer/base/by_rank.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/choose_together.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/config/engine_config.h"
#include "trainer/foreign/foreign_checkpoint.h"
#include "trainer/resume/resume_source.h"

namespace dslaunch {
namespace {

constexpr int64_t kKeepAll = std::numeric_limits<int64_t>::max();

// Returns rank 0's tag on every rank. If the tags differ, throws kUsage or prints a warning, as
// checkpoint.tag_validation specifies. Collective.
std::string AgreedTag(const EngineCore& engine, const std::string& own) {
  const std::vector<std::string> tags = GatherTexts(engine.group(), own);
  const TagValidation validation = engine.config().tag_validation;
  if (validation == TagValidation::kIgnore || GroupRanks(tags).size() == 1) return tags[0];
  const std::string problem = "the ranks give a checkpoint different tags: " +
                              ByRank(tags, [](const std::string& tag) { return tag; });
  if (validation == TagValidation::kFail) {
    throw TrainError(ExitCode::kUsage, problem + " (checkpoint.tag_validation is Fail)");
  }
  if (engine.group().rank() == 0) {
    PrintError("dslaunch: warning: " + problem + "; the tag of rank 0 is used");
  }
  return tags[0];
}

// Returns a clause about skipped tensors: "; not in the checkpoint: head.weight; not in the model:
// old.weight, old.bias". Returns "" if no tensors were skipped.
std::string Summary(const SkippedTensors& skipped) {
  std::string text;
  for (const auto& [where, names] :
       {std::pair("checkpoint", &skipped.missing), std::pair("model", &skipped.unexpected)}) {
    if (names->empty()) continue;
    text += std::string("; not in the ") + where + ": ";
    for (size_t i = 0; i < names->size(); ++i) text += (i == 0 ? "" : ", ") + (*names)[i];
  }
  return text;
}

// Throws kUsage unless all strings are UTF-8, because the manifest is JSON.
void CheckIsText(const ClientState& state) {
  try {
    nlohmann::json(state).dump();
  } catch (const nlohmann::json::exception&) {
    throw TrainError(ExitCode::kUsage,
                     "SaveCheckpoint: client_state has text that is not UTF-8; encode it");
  }
}

// Returns the job and the attempt of this process. The job is empty if no launcher started the
// process.
WorkerEnv JobOfThisProcess() {
  const Result<WorkerEnv> env = WorkerEnv::FromEnviron(std::getenv);
  return env ? *env : WorkerEnv{};
}

// Acquires the folder's lease; call this on rank 0. A program holds the lease from its first save
// in the folder until it exits.
void TakeFolder(CheckpointFolder& folder) {
  static Mutex mutex;
  // The leases that this program holds, keyed by the folder's real path.
  static std::map<std::string, std::shared_ptr<FolderLease>> leases;
  folder.Make();
  const std::string path = std::filesystem::canonical(folder.path());
  const MutexLock lock(mutex);
  std::shared_ptr<FolderLease>& lease = leases[path];
  if (lease) return folder.UseLease(lease);
  const WorkerEnv env = JobOfThisProcess();
  lease = std::make_shared<FolderLease>(path,
                                        ThisProcess(env.job_id, static_cast<int64_t>(env.attempt)));
  folder.UseLease(lease);
  folder.RemoveLeftovers();
}

// Loads a checkpoint of another program into the engine. Collective.
LoadedCheckpoint LoadForeign(const std::string& path, const LoadCheckpointOptions& options,
                             EngineCore& engine) {
  ResumeSource source = OpenResumeSource(path, engine.group());
  const bool weights_only = options.load_module_only || !source.has_optimizer();
  if (!weights_only && options.load_optimizer_states && engine.config().optimizer) {
    CheckSameOptimizer(source, engine, "set LoadCheckpointOptions::load_module_only");
  }
  std::vector<std::string> notes = source.notes;
  const SkippedTensors skipped = LoadSource(source, {},
                                            {.strict = options.load_module_strict,
                                             .weights_only = weights_only,
                                             .optimizer = options.load_optimizer_states,
                                             .schedule = options.load_lr_scheduler_states},
                                            engine, notes);
  std::string reason = "loading " + source.checkpoint.folder + " of " + source.program;
  if (weights_only && !options.load_module_only) reason += ", which has no optimizer state";
  reason += JoinedNotes(notes);
  return {.folder = source.checkpoint.folder,
          .reason = SanitizeForTerminal(reason) + Summary(skipped),
          .client_state = {},
          .missing_keys = skipped.missing,
          .unexpected_keys = skipped.unexpected,
          .micro_steps = engine.micro_steps()};
}

}  // namespace

void EngineCore::SaveCheckpoint(const std::string& dir, const std::string& tag,
                                const ClientState& client_state) const {
  CheckIsText(client_state);
  const std::string own = tag.empty() ? "global_step" + std::to_string(global_steps()) : tag;
  const std::string agreed = AgreedTag(*this, own);
  if (!IsTag(agreed)) {
    throw TrainError(ExitCode::kUsage, "SaveCheckpoint: the tag \"" + agreed +
                                           "\" cannot be the name of a checkpoint's folder");
  }
  CheckpointContent content = CaptureState(*this, group());
  content.manifest.client_state = client_state;
  CheckpointFolder folder(dir);
  const std::string failure = FailureOf([&] {
    if (group().rank() == 0) TakeFolder(folder);
  });
  ThrowFirstFailure(GatherTexts(group(), failure));
  CheckpointWriter(group(), folder, SaveScope(JobOfThisProcess())).Save(content, agreed, kKeepAll);
}

std::optional<LoadedCheckpoint> EngineCore::LoadCheckpoint(const std::string& dir,
                                                           const std::string& tag,
                                                           const LoadCheckpointOptions& options) {
  const std::string path = tag.empty() ? dir : dir + "/" + tag;
  const bool is_foreign = !HoldsOwnCheckpoint(dir) && WhatIs(path).has_value();
  if (std::ranges::count(GatherTexts(group(), is_foreign ? "foreign" : ""), "foreign") > 0) {
    return LoadForeign(path, options, *this);
  }
  CheckpointFolder folder(dir);
  const ResumeDecision decision = ChooseTogether(
      folder,
      [&](const CheckpointFolder::Listing& listing, const CheckpointFolder::Judge& judge) {
        return folder.ChooseTag(tag, listing, judge);
      },
      group());
  if (!decision.checkpoint) return std::nullopt;
  SkippedTensors skipped = RestoreState(*decision.checkpoint,
                                        {.strict = options.load_module_strict,
                                         .weights_only = options.load_module_only,
                                         .optimizer = options.load_optimizer_states,
                                         .schedule = options.load_lr_scheduler_states},
                                        *this);
  const Manifest& manifest = decision.checkpoint->manifest;
  return LoadedCheckpoint{.folder = decision.checkpoint->folder,
                          .reason = decision.reason + Summary(skipped),
                          .client_state = manifest.client_state,
                          .missing_keys = std::move(skipped.missing),
                          .unexpected_keys = std::move(skipped.unexpected),
                          .micro_steps = manifest.micro_steps};
}

}  // namespace dslaunch
