// Groups of parameters with their own settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// The parameters that meet all of the given conditions.
struct ParameterGroupConfig {
  std::vector<std::string> names;   // shell patterns, one of which matches the name; empty: any
  std::optional<int64_t> max_dims;  // largest number of dimensions; 1: biases and norms
  std::optional<double> lr;         // nullopt: the optimizer's rate
  std::optional<double> weight_decay;
};

struct ParameterInfo {
  std::string name;
  int64_t dims = 0;
};

// Returns for each parameter, frozen ones included, the index of the first group that contains it;
// groups.size() if none does. Throws kBadInput if a group contains no parameter, because a pattern
// with a typo would otherwise silently have no effect.
std::vector<size_t> AssignParameterGroups(const std::vector<ParameterGroupConfig>& groups,
                                          const std::vector<ParameterInfo>& parameters);

}  // namespace dslaunch
