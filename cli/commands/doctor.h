// Implements `dslaunch doctor`, which examines all nodes at once and prints the findings.
// --preflight examines nodes in the same way before a job (cli/bench/preflight.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/commands/doctor_report.h"
#include "cli/commands/job_view.h"
#include "cli/commands/node_inspection.h"
#include "cli/output/terminal.h"
#include "cli/plan/launch_plan.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/ssh/ssh_session.h"

namespace dslaunch {

// A node whose performance is measured.
struct BenchNode {
  std::string name;
  // Inspection of the node; null if the node was not reached.
  std::shared_ptr<NodeInspection> inspection;
  uint32_t threads = 1;  // number of threads that compute concurrently in a measurement
  uint32_t gpus = 0;     // number of GPUs that must be free
};

struct DoctorRequest {
  LaunchPlan plan;
  SshOptions ssh;
  DeviceChoice device = DeviceChoice::kAuto;
  bool trains = false;
  std::optional<pb::Program> program;  // program of the planned job; nullopt if no job is planned
  bool json = false;
  milliseconds connect_timeout{20'000};
  std::string bin_dir;  // folder of dslaunch and its trainer; empty to skip the trainer
  std::string cwd;
  std::string python_folder;  // Python environment that nodes must have; empty if none
  std::vector<JobView> jobs;  // jobs that currently run on the nodes
  // Measures the nodes (cli/bench/bench_nodes.h); empty to measure nothing.
  std::function<Bench(const std::vector<BenchNode>&)> bench;
};

// Examines all nodes. Blocks for the connect time-out plus about 30 s at most, and for the time of
// the measurements. Late threads may still use the connections afterwards, so the process must end
// by _exit.
DoctorInfo ExamineNodes(const DoctorRequest& request, const AgentBinary& agent);

// Prints the findings of ExamineNodes() and returns the exit code, which is 69 if a check fails.
int RunDoctor(const DoctorRequest& request, const AgentBinary& agent, Terminal& terminal);

}  // namespace dslaunch
