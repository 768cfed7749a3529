#include "trainer/checkpoint/agreement.h"

#include "trainer/base/by_rank.h"

namespace dslaunch {
namespace {

constexpr double kFresh = -1;
constexpr double kRefused = -2;

std::string Description(const SeenCheckpoint& seen) {
  if (seen.step == kFresh) return "none";
  if (seen.step == kRefused) return "no complete checkpoint";
  return TagOf(static_cast<int64_t>(seen.step));
}

}  // namespace

SeenCheckpoint Seen(const ResumeDecision& decision) {
  if (decision.kind == ResumeDecision::Kind::kFresh) return {kFresh, 0};
  if (decision.kind == ResumeDecision::Kind::kRefused) return {kRefused, 0};
  const Manifest& manifest = decision.checkpoint->manifest;
  const std::string text = FormatManifest(manifest);
  return {static_cast<double>(manifest.position.step),
          static_cast<double>(Crc32(text.data(), text.size()))};
}

std::string Disagreement(const std::string& folder, const std::vector<SeenCheckpoint>& seen) {
  if (GroupRanks(seen).size() < 2) return "";
  return "the ranks do not see the same checkpoints in " + folder + " (" +
         ByRank(seen, Description) + "); --checkpoint_dir must be one folder that all nodes share";
}

}  // namespace dslaunch
