// Which parameters go by settings of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// Takes the parameters for which all that is given holds.
struct ParameterGroupConfig {
  std::vector<std::string> names;   // shell patterns, one of which matches the name; empty: any
  std::optional<int64_t> max_dims;  // dimensions of the tensor; 1 takes biases and norms
  std::optional<double> lr;         // nullopt: the optimizer's
  std::optional<double> weight_decay;
};

struct ParameterInfo {
  std::string name;
  int64_t dims = 0;
};

// For each parameter, frozen ones included, the index of the first group that takes it;
// groups.size() for those that none takes. Throws kBadInput where a group is left without any: a
// pattern with a typo would otherwise change nothing, in silence.
std::vector<size_t> AssignParameterGroups(const std::vector<ParameterGroupConfig>& groups,
                                          const std::vector<ParameterInfo>& parameters);

}  // namespace dslaunch
