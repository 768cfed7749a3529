#include "cli/preflight/replacements.h"

#include <algorithm>
#include <utility>

#include "base/count.h"

namespace dslaunch {
namespace {

size_t CountWithRanks(const std::vector<Host>& nodes) {
  return static_cast<size_t>(
      std::ranges::count(nodes, false, [](const Host& node) { return node.spare; }));
}

}  // namespace

Replacements ReplaceUnfit(LaunchPlan plan, std::vector<UnfitNode> unfit) {
  Replacements result;
  std::ranges::stable_sort(
      unfit, [](const UnfitNode& a, const UnfitNode& b) { return a.fails && !b.fails; });
  std::vector<Host>& nodes = plan.nodes;
  const auto is_unfit = [&](const Host& node) {
    return std::ranges::any_of(unfit, [&](const UnfitNode& one) { return one.name == node.name; });
  };
  const auto with_ranks_needed =
      static_cast<size_t>(std::max({plan.min_nodes, plan.start_nodes, 1}));
  for (const UnfitNode& one : unfit) {
    const auto node = std::ranges::find(nodes, one.name, &Host::name);
    if (node == nodes.end()) {
      if (one.fails) result.missing.push_back(one.name);
      continue;
    }
    if (node->spare) {
      nodes.erase(node);
      result.notices.push_back("spare " + one.name + " is set aside");
      continue;
    }
    const auto spare = std::ranges::find_if(nodes, [&](const Host& other) {
      return other.spare && other.slots >= node->slots && !is_unfit(other);
    });
    if (spare != nodes.end()) {
      result.notices.push_back(one.name + " is set aside; spare " + spare->name +
                               " gets its ranks");
      Host replacement = *spare;
      replacement.spare = false;
      replacement.slots = node->slots;
      if (!replacement.devices.empty())
        replacement.devices.resize(static_cast<size_t>(replacement.slots));
      *node = std::move(replacement);
      nodes.erase(spare);
    } else if (CountWithRanks(nodes) > with_ranks_needed) {
      nodes.erase(node);
      result.notices.push_back(one.name + " is set aside; the job begins with " +
                               Count(CountWithRanks(nodes), "node"));
    } else if (one.fails) {
      result.missing.push_back(one.name);
    } else {
      result.notices.push_back(one.name + " keeps its ranks, because there is no spare for it");
    }
  }
  plan.ranks = NumberRanksOf(nodes);
  plan.max_nodes = static_cast<int>(CountWithRanks(nodes));
  plan.min_nodes = std::min(plan.min_nodes, plan.max_nodes);
  result.plan = std::move(plan);
  return result;
}

}  // namespace dslaunch
