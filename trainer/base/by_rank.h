// What ranks have in common and where they differ, in words. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// "rank 3"; "ranks 0, 2"; of many the first eight: "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
std::string RankList(const std::vector<size_t>& ranks);

// What `ranks` are called; without names themselves.
std::vector<size_t> Named(std::vector<size_t> ranks, const std::vector<size_t>& names);

// `values` has an entry for each rank. The groups of ranks with equal values, in the order of their
// first rank.
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

// "rank 0: this; ranks 1, 2: that". `describe` makes words of a value. `names` are what ranks are
// called, where that is not their place.
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
