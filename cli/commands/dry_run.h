// Implements `--dry_run`, which prints everything that a job would do without doing it. Values that
// are chosen at the start, such as a free port or the job's id, are described.
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
  SessionOptions session;  // options as for the job; the job's id is ignored
  PlanInfo info;
  std::vector<std::string> environment;  // environment of this process, which local ranks inherit
  std::string recipe_source;             // origin of the trainer's recipe; empty for other programs
};

// A variable in the environment of a rank.
struct Setting {
  std::string name;
  std::string value;
  // True if `value` is a description, because the real value is chosen at the start.
  bool is_described = false;

  bool operator==(const Setting&) const = default;
};

struct PlannedRank {
  int rank = 0;
  int local_rank = 0;
  size_t node = 0;  // index of the rank's node in plan.nodes
  std::vector<std::string> argv;
  // Variables beyond those that the node sets for all programs, sorted by name.
  std::vector<Setting> env;
};

// The plan of a job that is printed instead of run. Opens no connection and starts no process;
// reads the program's files on this machine. Secret values are masked in all output.
class DryRun {
 public:
  // Plans the job. Returns the errors that the job would have, as far as they can be found without
  // the job's nodes.
  static Result<DryRun> Make(DryRunRequest request);

  // Returns the plan as text for people.
  std::string ToText() const;
  // Returns the plan as a JSON object with a line for each node or rank; docs/reference/json.md
  // lists the fields.
  std::string ToJson() const;

  // Returns the planned ranks of a node. Precondition: the node is not a spare.
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
  std::string Limits() const;

  DryRunRequest request_;
  // Kind of the job's devices; DEVICE_AUTO if unknown before the start.
  pb::Device device_ = pb::DEVICE_AUTO;
  std::vector<Accelerator> numbered_;  // devices of this machine, if the job runs on it
  std::string device_reason_;
  // Command on nodes whose hostfile entry sets no variables.
  std::optional<ResolvedProgram> command_;
};

}  // namespace dslaunch
