// `--dry_run`: shows all that a job would do, and does none of it. What only the start decides (a
// free port, the job's id) is described.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "cli/plan/launch_plan.h"
#include "cli/session/session.h"

namespace dslaunch {

struct DryRunRequest {
  SessionOptions session;  // as the job would have it; its id does not count
  PlanInfo info;
  std::vector<std::string> environment;  // of this process: ranks on this machine have it too
  std::string recipe_source;             // of the embedded trainer's recipe; empty: another program
};

// A variable that a rank is given.
struct Setting {
  std::string name;
  std::string value;
  bool is_described = false;  // `value` is a description: only the start decides the value

  bool operator==(const Setting&) const = default;
};

struct PlannedRank {
  int rank = 0;
  int local_rank = 0;
  size_t node = 0;  // of plan.nodes
  std::vector<std::string> argv;
  std::vector<Setting> env;  // beyond what its node gives to programs; by name
};

// Values of secrets are masked in all of its output. Opens no connection and starts no process;
// reads the program's files on this machine.
class DryRun {
 public:
  // Fails as the job would as far as that can be known without its nodes.
  static Result<DryRun> Make(DryRunRequest request);

  // For people.
  std::string ToText() const;
  // For programs; docs/reference/json.md has its fields. One JSON object, a node or rank a line.
  std::string ToJson() const;

  // The ranks of one node, which is no spare.
  Result<std::vector<PlannedRank>> RanksOf(size_t node) const;

 private:
  explicit DryRun(DryRunRequest request) : request_(std::move(request)) {}

  Result<void> DecideDevices();
  Environment BaseOf(const pb::Program& program) const;
  Result<ResolvedProgram> CommandOn(const Host& node, const pb::Program& program,
                                    const Environment& environment) const;
  void ForEachNode(const std::function<void(const std::vector<PlannedRank>&)>& see) const;
  std::string Summary() const;
  std::string Nodes() const;
  std::string Commands() const;
  std::string Environments() const;
  std::string Training() const;
  std::string Limits() const;

  DryRunRequest request_;
  bool use_cuda_ = false;
  bool device_known_ = false;
  std::string device_reason_;
  std::optional<ResolvedProgram> command_;  // of nodes without variables of their own
};

}  // namespace dslaunch
