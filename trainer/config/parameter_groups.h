// Defines groups of parameters with their own optimizer settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// A group of parameters: those that meet all conditions of the group.
struct ParameterGroupConfig {
  // Shell patterns, one of which must match the parameter's name; empty to match any name.
  std::vector<std::string> names;
  std::optional<int64_t> max_dims;  // maximum number of dimensions; 1 selects biases and norms
  std::optional<double> lr;         // learning rate of the group; nullopt for the optimizer's rate
  std::optional<double> weight_decay;
};

struct ParameterInfo {
  std::string name;
  int64_t dims = 0;
};

// Returns, for each parameter, including frozen parameters, the index of the first group that
// contains it; groups.size() if no group contains it. Throws kBadInput if a group contains no
// parameter, because a pattern with a typo would otherwise silently have no effect.
std::vector<size_t> AssignParameterGroups(const std::vector<ParameterGroupConfig>& groups,
                                          const std::vector<ParameterInfo>& parameters);

}  // namespace dslaunch
