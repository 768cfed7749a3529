// Implements `dslaunch logs`, which prints the output of a job's ranks from their files on every
// node.
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

// Prints the output of ranks on the caller's thread. Separate threads connect to the nodes; they
// own their data and may outlive the session until their deadlines.
class LogsSession {
 public:
  // Prepares to print the output of the job of `record`. `terminal` must outlive the session.
  LogsSession(JobRecord record, AgentBinary agent, JobCommand command, Terminal& terminal);
  ~LogsSession();
  LogsSession(const LogsSession&) = delete;

  // Prints all requested output. Returns 0, 69 if a node could not be reached (the node is named),
  // or 130 if the user interrupts. Call it once.
  int Run();

  const JobOutput& output() const { return output_; }

 private:
  void Open(size_t index);
  void OnOver(size_t index, const Result<void>& result, bool complete);

  const JobRecord record_;
  const AgentBinary agent_;
  const JobCommand command_;
  // Streams must outlive the loop (node_stream.h), so this member is declared first.
  std::vector<std::unique_ptr<NodeStream>> streams_;
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  JobOutput output_;
  asio::signal_set signals_;
  size_t open_ = 0;
  int exit_code_ = 0;
};

}  // namespace dslaunch
