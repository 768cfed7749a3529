#include "trainer/config/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

bool Takes(const ParameterGroupConfig& group, const ParameterInfo& parameter) {
  if (group.max_dims && parameter.dims > *group.max_dims) return false;
  return group.names.empty() ||
         std::any_of(group.names.begin(), group.names.end(), [&](const std::string& pattern) {
           return fnmatch(pattern.c_str(), parameter.name.c_str(), 0) == 0;
         });
}

[[noreturn]] void FailEmpty(size_t group, const std::vector<ParameterInfo>& parameters) {
  constexpr size_t kShown = 4;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, parameters.size()); ++i) {
    names += (i == 0 ? "" : ", ") + parameters[i].name;
  }
  throw TrainError(ExitCode::kBadInput,
                   "engine.optimizer.param_groups[" + std::to_string(group) +
                       "] matches no parameter that is not in an earlier group; the model has " +
                       names + (parameters.size() > kShown ? ", ..." : ""));
}

}  // namespace

std::vector<size_t> AssignParameterGroups(const std::vector<ParameterGroupConfig>& groups,
                                          const std::vector<ParameterInfo>& parameters) {
  std::vector<size_t> assigned;
  std::vector<bool> used(groups.size() + 1);
  for (const ParameterInfo& parameter : parameters) {
    const auto found =
        std::find_if(groups.begin(), groups.end(),
                     [&](const ParameterGroupConfig& group) { return Takes(group, parameter); });
    assigned.push_back(static_cast<size_t>(found - groups.begin()));
    used[assigned.back()] = true;
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    if (!used[group]) FailEmpty(group, parameters);
  }
  return assigned;
}

}  // namespace dslaunch
