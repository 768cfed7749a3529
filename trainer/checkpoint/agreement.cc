#include "trainer/checkpoint/agreement.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr double kFresh = -1;
constexpr double kRefused = -2;
constexpr size_t kMaxListed = 8;

std::string Description(const SeenCheckpoint& seen) {
  if (seen.step == kFresh) return "none";
  if (seen.step == kRefused) return "none that is whole";
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
  std::vector<SeenCheckpoint> kinds;
  for (const SeenCheckpoint& one : seen) {
    if (std::find(kinds.begin(), kinds.end(), one) == kinds.end()) kinds.push_back(one);
  }
  if (kinds.size() < 2) return "";
  std::string text;
  for (const SeenCheckpoint& kind : kinds) {
    std::string ranks;
    size_t count = 0;
    for (size_t rank = 0; rank < seen.size(); ++rank) {
      if (seen[rank] != kind || ++count > kMaxListed) continue;
      ranks += (count == 1 ? "" : ", ") + std::to_string(rank);
    }
    if (count > kMaxListed) ranks += " and " + std::to_string(count - kMaxListed) + " more";
    text += (text.empty() ? "" : "; ") + std::string(count == 1 ? "rank " : "ranks ") + ranks +
            ": " + Description(kind);
  }
  return "the ranks do not see the same checkpoints in " + folder + " (" + text +
         "); --checkpoint_dir must be one folder that all nodes share";
}

}  // namespace dslaunch
