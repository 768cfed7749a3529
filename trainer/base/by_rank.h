// Formats messages about values that are equal on, or differ between, ranks. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns text such as "rank 3" or "ranks 0, 2". If there are more than eight ranks, only the first
// eight are named: "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
std::string RankList(const std::vector<size_t>& ranks);

// Replaces each index in `ranks` by its number in `names`; returns `ranks` if `names` is empty.
std::vector<size_t> Named(std::vector<size_t> ranks, const std::vector<size_t>& names);

// Groups the ranks with equal values. The groups are in the order of their first ranks. `values`
// has an entry for each rank.
template <class T>
std::vector<std::vector<size_t>> GroupRanks(const std::vector<T>& values) {
  std::vector<std::vector<size_t>> groups;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    size_t group = 0;
    while (group < groups.size() && !(values[groups[group][0]] == values[rank])) ++group;
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(rank);
  }
  return groups;
}

// Returns text such as "rank 0: this; ranks 1, 2: that". `describe` formats a value. `names` has
// the numbers of the ranks; empty if these equal the indices in `values`.
template <class T, class Describe>
std::string ByRank(const std::vector<T>& values, Describe describe,
                   const std::vector<size_t>& names = {}) {
  std::string text;
  for (const std::vector<size_t>& ranks : GroupRanks(values)) {
    text += (text.empty() ? "" : "; ") + RankList(Named(ranks, names)) + ": " +
            describe(values[ranks[0]]);
  }
  return text;
}

}  // namespace dslaunch
