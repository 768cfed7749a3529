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
#include "net/loop_poster.h"

namespace dslaunch {

// Runs on the caller's thread. Nodes are reached by threads of their own, which own what they use
// and may outlive the session, each until its deadline.
class LogsSession {
 public:
  // The terminal outlives the session.
  LogsSession(JobRecord record, AgentBinary agent, JobCommand command, Terminal& terminal);
  ~LogsSession();
  LogsSession(const LogsSession&) = delete;

  // Once. Shows everything that was asked for; 0, 69 when a node could not be reached (it is
  // named), 130 when the user interrupts it.
  int Run();

  const JobOutput& output() const { return output_; }

 private:
  void Open(size_t index);
  void OnOver(size_t index, const Result<void>& result, bool complete);

  const JobRecord record_;
  const AgentBinary agent_;
  const JobCommand command_;
  std::vector<std::unique_ptr<NodeStream>> streams_;  // outlive the loop (node_stream.h)
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  JobOutput output_;
  asio::signal_set signals_;
  size_t open_ = 0;
  int exit_code_ = 0;
};

}  // namespace dslaunch
