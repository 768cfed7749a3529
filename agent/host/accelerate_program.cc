#include "agent/host/accelerate_program.h"

#include <algorithm>
#include <string_view>

#include "agent/host/accelerate_module.h"
#include "proto/contract/accelerate_config.h"

namespace dslaunch {
namespace {

bool IsPython(std::string_view executable) {
  return executable.substr(executable.rfind('/') + 1).starts_with("python");
}

}  // namespace

Result<ResolvedProgram> WithAccelerate(ResolvedProgram resolved, const pb::Program& program,
                                       const Environment& environment,
                                       const std::string& node_name) {
  const bool has_config = std::ranges::any_of(program.chosen_env(), [](const pb::EnvVar& variable) {
    return variable.name() == kAccelerateConfigVariable;
  });
  if (!has_config) return resolved;
  std::string python = resolved.argv.front();
  if (!IsPython(python)) {
    DSL_TRY_ASSIGN(python, FindExecutable(PythonInterpreter(program, environment), environment,
                                          resolved.cwd, node_name));
  }
  const std::string front[] = {python, "-c", kAccelerateModule};
  resolved.argv.insert(resolved.argv.begin(), std::begin(front), std::end(front));
  resolved.local_rank_at += std::size(front);
  return resolved;
}

}  // namespace dslaunch
