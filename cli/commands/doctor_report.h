// Derives the findings of `dslaunch doctor` from the nodes' answers (doctor_diagnosis.cc), and
// formats them as a table and as JSON (doctor_report.cc). All functions are pure.
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

// The answers of a node, and the steps of connecting to it.
struct DoctorNode {
  std::string name;
  int slots = 0;
  bool spare = false;

  // Completed steps of the connection to the node's agent, in order.
  std::vector<std::string> steps;
  std::string failed_step;  // step of the connection that failed; empty if none failed
  std::string failure;

  std::optional<pb::NodeInfo> report;
  // Offset of the node's clock from this machine's clock, in microseconds.
  int64_t clock_ahead_us = 0;
  int64_t clock_error_us = 0;  // largest error of clock_ahead_us, in microseconds

  // The node's attempts to reach the rendezvous; nullopt if the node was not asked or did not
  // answer.
  std::optional<pb::ReachReply> reach;
  std::string reach_failure;
};

struct DoctorInfo {
  Launcher launcher = Launcher::kLocal;
  std::string version;
  std::string build_id;                   // build id of the agent beside dslaunch
  std::vector<std::string> other_builds;  // build ids of the agents for other machine types
  std::string cwd;
  std::string python_folder;  // local Python environment that nodes must have too; empty if none
  DeviceChoice device = DeviceChoice::kAuto;
  int world_size = 0;
  bool has_trainer = false;     // whether the local trainer's files are complete
  bool trainer_needed = false;  // whether the planned job is `train`, which needs the trainer
  std::vector<DoctorNode> nodes;
  std::optional<size_t> rendezvous;  // index of the node that listened for the other nodes
  std::optional<pb::ListenReply> listen;
  std::optional<Bench> bench;  // measurements, indexed as `nodes`; nullopt if nothing was measured
  std::vector<JobView> jobs;   // jobs that run on the nodes, as of `now_unix_ms`
  int64_t now_unix_ms = 0;
};

struct Finding {
  enum class Level { kOk, kWarning, kFailure };
  // Name of the node that the finding describes; empty for a finding about all nodes.
  std::string node;
  std::string check;  // name of the check: one or two words
  Level level = Level::kOk;
  std::string seen;
  std::string hint;       // instruction for fixing the problem; empty for kOk
  bool measured = false;  // true for a warning that a node is slow or its clock wrong
};

// Returns the results of all checks that the answers allow, in the order of the nodes. Checks of
// all nodes together are last.
std::vector<Finding> Diagnose(const DoctorInfo& info);

bool AnyFails(const std::vector<Finding>& findings);

// Returns the findings as text for people: a line for each healthy node, a line with a hint below
// for each check that warns or fails, and a summary.
std::string DoctorTable(const DoctorInfo& info, const std::vector<Finding>& findings);

// Returns the findings as JSON for programs; docs/reference/json.md lists the fields.
std::string DoctorJson(const DoctorInfo& info, const std::vector<Finding>& findings);

// An error message split into its statement and its hint, without the leading "node 'x' (where): ".
// A last clause that quotes a node's output ("it printed ...") or ends with a question mark is not
// a hint, so `hint` is then empty.
struct SplitMessage {
  std::string seen;
  std::string hint;
};
SplitMessage SplitAtHint(const std::string& message);

}  // namespace dslaunch
