// The findings of `dslaunch doctor`, derived from the nodes' answers (doctor_diagnosis.cc), as a
// table and as JSON (doctor_report.cc). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands/job_view.h"
#include "cli/options/options.h"
#include "cli/preflight/findings.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// The answers of one node.
struct DoctorNode {
  std::string name;
  int slots = 0;
  bool spare = false;

  // The steps of the connection to its agent: the completed ones, in order, and the one that
  // failed, empty if none.
  std::vector<std::string> steps;
  std::string failed_step;
  std::string failure;

  std::optional<pb::NodeInfo> report;
  // Relative to this machine's clock, with an error of up to clock_error_us.
  int64_t clock_ahead_us = 0;
  int64_t clock_error_us = 0;

  // Whether it reaches the rendezvous; nullopt if not asked or failed.
  std::optional<pb::ReachReply> reach;
  std::string reach_failure;
};

struct DoctorInfo {
  Launcher launcher = Launcher::kLocal;
  std::string version;                    // version of this dslaunch
  std::string build_id;                   // build id of the agent beside it
  std::vector<std::string> other_builds;  // likewise, for other machine types
  std::string cwd;
  std::string python_folder;  // local Python environment that nodes must have too; empty if none
  DeviceChoice device = DeviceChoice::kAuto;
  int world_size = 0;
  bool has_trainer = false;     // the local trainer's files are complete
  bool trainer_needed = false;  // the planned job is `train`
  std::vector<DoctorNode> nodes;
  std::optional<size_t> rendezvous;  // index of the node that listened for the others
  std::optional<pb::ListenReply> listen;
  std::optional<Bench> bench;  // its nodes are `nodes`; nullopt: nothing was measured
  std::vector<JobView> jobs;   // jobs that run on the nodes, at `now_unix_ms`
  int64_t now_unix_ms = 0;
};

struct Finding {
  enum class Level { kOk, kWarning, kFailure };
  std::string node;   // empty for a finding about all nodes
  std::string check;  // one or two words
  Level level = Level::kOk;
  std::string seen;
  std::string hint;       // empty for kOk
  bool measured = false;  // a warning that a node is slow or its clock wrong
};

// Returns the results of all possible checks, in the order of the nodes; checks of all nodes are
// last.
std::vector<Finding> Diagnose(const DoctorInfo& info);

bool AnyFails(const std::vector<Finding>& findings);

// Returns lines for people: one for each healthy node, one with a hint below it for each check that
// warns or fails, and a summary.
std::string DoctorTable(const DoctorInfo& info, const std::vector<Finding>& findings);

// Returns JSON for programs; docs/reference/json.md lists its fields.
std::string DoctorJson(const DoctorInfo& info, const std::vector<Finding>& findings);

// An error message split into its statement and its hint, without the leading "node 'x' (where): ".
// A node's own output and a question are not hints.
struct SplitMessage {
  std::string seen;
  std::string hint;
};
SplitMessage SplitAtHint(const std::string& message);

}  // namespace dslaunch
