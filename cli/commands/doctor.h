// `dslaunch doctor`: asks all nodes at once and shows what was found.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"
#include "cli/commands/doctor_report.h"
#include "cli/output/terminal.h"
#include "cli/plan/launch_plan.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/ssh_session.h"

namespace dslaunch {

struct DoctorRequest {
  LaunchPlan plan;
  SshOptions ssh;
  DeviceChoice device = DeviceChoice::kAuto;
  bool trains = false;
  std::optional<pb::Program> program;  // of the job that is to be started
  bool json = false;
  milliseconds connect_timeout{20'000};
  std::string bin_dir;  // where it and its trainer are
  std::string cwd;
  std::string python_folder;  // the Python environment that nodes must have; empty: none
};

// Blocks for the connect time-out and some 30 s at most. The exit code is 69 when something fails.
// The process must end by _exit: threads may still wait for nodes that do not answer.
int RunDoctor(const DoctorRequest& request, const AgentBinary& agent, Terminal& terminal);

}  // namespace dslaunch
