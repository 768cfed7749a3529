#include "cli/preflight/pair_rounds.h"

namespace dslaunch {

std::vector<PairRound> PlanRounds(size_t nodes) {
  std::vector<PairRound> rounds;
  if (nodes < 2) return rounds;
  PairRound& first = rounds.emplace_back();
  for (size_t i = 0; i + 1 < nodes; i += 2) first.push_back({i, i + 1});
  if (nodes == 2) return rounds;
  PairRound second;
  for (size_t i = 1; i + 1 < nodes; i += 2) second.push_back({i, i + 1});
  const NodePair around = {nodes - 1, 0};
  if (nodes % 2 == 0) second.push_back(around);
  rounds.push_back(std::move(second));
  if (nodes % 2 == 1) rounds.push_back({around});
  return rounds;
}

std::vector<PairRound> PlanConfirmation(const std::vector<size_t>& suspects,
                                        const std::vector<size_t>& partners) {
  std::vector<PairRound> rounds;
  if (partners.empty()) return rounds;
  for (size_t i = 0; i < suspects.size(); ++i) {
    const size_t partner = i % partners.size();
    if (partner == 0) rounds.emplace_back();
    rounds.back().push_back({partners[partner], suspects[i]});
  }
  return rounds;
}

}  // namespace dslaunch
