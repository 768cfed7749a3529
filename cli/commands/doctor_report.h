// The findings of `dslaunch doctor` from the nodes' answers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/options.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// What is known of one node.
struct DoctorNode {
  std::string name;
  int slots = 0;
  bool spare = false;

  // The steps to its agent: those that were done, in order, and the one that failed; empty: none.
  std::vector<std::string> steps;
  std::string failed_step;
  std::string failure;

  std::optional<pb::NodeInfo> report;
  int64_t clock_ahead_us = 0;  // of this machine's, known to within clock_error_us
  int64_t clock_error_us = 0;

  std::optional<pb::ReachReply> reach;  // of the rendezvous; nullopt: not asked, or it failed
  std::string reach_failure;
};

struct DoctorInfo {
  Launcher launcher = Launcher::kLocal;
  std::string version;   // of this dslaunch
  std::string build_id;  // of the agent beside it
  std::string cwd;
  std::string python_folder;  // the Python environment of this machine, if nodes are to have it
  DeviceChoice device = DeviceChoice::kAuto;
  int world_size = 0;
  bool has_trainer = false;     // of this machine works, as far as its files show
  bool trainer_needed = false;  // the job that is to be started is `train`
  std::vector<DoctorNode> nodes;
  std::optional<size_t> rendezvous;  // the node that was asked to listen for the others
  std::optional<pb::ListenReply> listen;
};

struct Finding {
  enum class Level { kOk, kWarning, kFailure };
  std::string node;   // empty: of all
  std::string check;  // one or two words
  Level level = Level::kOk;
  std::string seen;
  std::string hint;  // empty when all is well
};

// Every check that could be made, in the order of the nodes; those of all nodes come last.
std::vector<Finding> Diagnose(const DoctorInfo& info);

bool AnyFails(const std::vector<Finding>& findings);

// Lines for people: one for each healthy node, one for each check that warns or fails with its hint
// below it, and a summary.
std::string DoctorTable(const DoctorInfo& info, const std::vector<Finding>& findings);

// For programs; docs/reference/json.md has its fields.
std::string DoctorJson(const DoctorInfo& info, const std::vector<Finding>& findings);

// "what; hint" taken apart, without the "node 'x' (where): " in front. A node's own
// output, and a question, is not a hint.
struct SplitMessage {
  std::string seen;
  std::string hint;
};
SplitMessage SplitAtHint(const std::string& message);

}  // namespace dslaunch
