// `dslaunch doctor`: examines all nodes at once and prints the findings.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"
#include "cli/commands/doctor_report.h"
#include "cli/output/terminal.h"
#include "cli/plan/launch_plan.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/ssh/ssh_session.h"

namespace dslaunch {

struct DoctorRequest {
  LaunchPlan plan;
  SshOptions ssh;
  DeviceChoice device = DeviceChoice::kAuto;
  bool trains = false;
  std::optional<pb::Program> program;  // program of the planned job
  bool json = false;
  milliseconds connect_timeout{20'000};
  std::string bin_dir;  // folder of dslaunch and its trainer
  std::string cwd;
  std::string python_folder;  // Python environment that nodes must have; empty if none
};

// Blocks for the connect time-out plus about 30 s at most. Returns the exit code, 69 if a check
// fails. The process must then end by _exit, because threads may still wait for nodes that do not
// answer.
int RunDoctor(const DoctorRequest& request, const AgentBinary& agent, Terminal& terminal);

}  // namespace dslaunch
