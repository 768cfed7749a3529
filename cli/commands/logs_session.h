// `dslaunch logs`: what the ranks of a job wrote, from its files on every node.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/node_stream.h"
#include "cli/options/job_command.h"
#include "cli/output/job_output.h"
#include "cli/output/terminal.h"
#include "cli/session/job_record.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

// Runs on the caller's thread; other threads only post to its loop and may outlive it: end the
// process by _exit.
class LogsSession {
 public:
  LogsSession(JobRecord record, AgentBinary agent, JobCommand command, Terminal& terminal);

  // Shows everything that was asked for; 0, 69 when a node could not be reached (it is named), 130
  // when the user interrupts it.
  int Run();

 private:
  void Open(size_t index);
  void OnOver(size_t index, const Result<void>& result, bool complete);

  const JobRecord record_;
  const AgentBinary agent_;
  const JobCommand command_;
  asio::io_context loop_{1};
  JobOutput output_;
  asio::signal_set signals_;
  std::vector<std::unique_ptr<NodeStream>> streams_;
  size_t open_ = 0;
  int exit_code_ = 0;
};

}  // namespace dslaunch
