// The engine's own checkpoints, for programs; `dslaunch train` has its Checkpointer.
#include <limits>
#include <nlohmann/json.hpp>

#include "dslaunch/engine.h"
#include "trainer/base/by_rank.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/config/engine_config.h"

namespace dslaunch {
namespace {

constexpr int64_t kKeepAll = std::numeric_limits<int64_t>::max();

// Rank 0's tag.
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

// The manifest is JSON, hence UTF-8. Throws kUsage.
void CheckIsText(const ClientState& state) {
  try {
    nlohmann::json(state).dump();
  } catch (const nlohmann::json::exception&) {
    throw TrainError(ExitCode::kUsage,
                     "SaveCheckpoint: client_state has text that is not UTF-8; encode it");
  }
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
  CheckpointContent content = CaptureState(*this);
  content.manifest.client_state = client_state;
  CheckpointFolder folder(dir);
  const std::string failure = FailureOf([&] {
    if (group().rank() == 0) folder.Prepare();
  });
  ThrowFirstFailure(GatherTexts(group(), failure));
  CheckpointWriter(group(), folder).Save(content, agreed, kKeepAll);
}

std::optional<LoadedCheckpoint> EngineCore::LoadCheckpoint(const std::string& dir,
                                                           const std::string& tag,
                                                           const LoadCheckpointOptions& options) {
  CheckpointFolder folder(dir);
  const ResumeDecision decision = folder.ChooseTag(tag);
  AgreeOnChoice(decision, dir, group());
  if (!decision.checkpoint) return std::nullopt;
  RestoreState(*decision.checkpoint,
               {.weights_only = options.load_module_only,
                .optimizer = options.load_optimizer_states,
                .schedule = options.load_lr_scheduler_states},
               *this);
  const Manifest& manifest = decision.checkpoint->manifest;
  return LoadedCheckpoint{decision.checkpoint->folder, decision.reason, manifest.client_state,
                          manifest.micro_steps};
}

}  // namespace dslaunch
