#include "trainer/checkpoint/choose_together.h"

#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/agreement.h"
#include "trainer/checkpoint/shared_check.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/numbers.h"
#include "trainer/comm/rank_failure.h"

namespace dslaunch {
namespace {

// Throws on every rank if the ranks' own decisions differ.
void CheckSameChoice(const ResumeDecision& own, const std::string& path,
                     const ProcessGroup& group) {
  const SeenCheckpoint seen = Seen(own);
  std::vector<SeenCheckpoint> all;
  for (const std::vector<double>& rank : GatherNumbers(group, {seen.step, seen.identity})) {
    all.push_back({rank[0], rank[1]});
  }
  const std::string problem = Disagreement(path, all);
  if (!problem.empty()) throw TrainError(ExitCode::kBadInput, problem);
}

// Returns the first damage that any rank has found; "" if the checkpoint is whole. The result is
// equal on all ranks.
std::string FindDamageTogether(const Checkpoint& checkpoint, const ProcessGroup& group) {
  const CheckReport own = CheckParts(checkpoint, group.rank(), group.world_size());
  std::vector<CheckReport> reports;
  for (const std::string& text : GatherTexts(group, FormatReport(own))) {
    reports.push_back(ParseReport(text, static_cast<int>(reports.size())));
  }
  return FirstDamage(checkpoint, reports);
}

}  // namespace

ResumeDecision ChooseTogether(const CheckpointFolder& folder, const ChooseFrom& choose,
                              const ProcessGroup& group) {
  CheckpointFolder::Listing listing;
  ThrowFirstFailure(GatherTexts(group, FailureOf([&] { listing = folder.List(); })));
  return choose(listing, [&](const ResumeDecision& decision) -> std::string {
    CheckSameChoice(decision, folder.path(), group);
    if (decision.kind == ResumeDecision::Kind::kRefused) {
      throw TrainError(ExitCode::kBadInput, decision.reason);
    }
    return decision.checkpoint ? FindDamageTogether(*decision.checkpoint, group) : "";
  });
}

}  // namespace dslaunch
