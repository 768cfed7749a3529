// Handles this process's stdin: forwards it to rank 0, or detects input that no rank reads.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "cli/output/job_output.h"
#include "cli/session/stdin_forwarder.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Connects stdin to the session. Used on the loop's thread.
class SessionStdin {
 public:
  // Sends `data` and, if `end` is set, the end of the input to the ranks of a node.
  using Send = std::function<void(size_t node, const std::string& data, bool end,
                                  std::function<void(bool)> then)>;

  // Prepares to handle stdin. `notice` is logged once if stdin has bytes to read; if it is empty,
  // nothing is logged.
  SessionStdin(asio::io_context& loop, std::string notice, Send send,
               std::function<void(const std::string&)> log)
      : loop_(loop), notice_(std::move(notice)), send_(std::move(send)), log_(std::move(log)) {}

  // Begins to handle stdin. `forwards` is true if rank 0 reads the input, from the rank's start
  // to its end.
  void Open(bool forwards, JobOutput& output);
  void OnEvent(size_t index, const pb::NodeEvent& event);

 private:
  void LogNotice();

  asio::io_context& loop_;
  const std::string notice_;
  const Send send_;
  const std::function<void(const std::string&)> log_;
  // Sends stdin to rank 0; nullopt if rank 0 does not read it.
  std::optional<StdinForwarder> forwarder_;
  // Watch of stdin; set if there is a notice and stdin is not forwarded.
  std::optional<StdinWatch> watch_;
  bool notice_logged_ = false;
  size_t node_ = 0;  // index of the node of rank 0
};

}  // namespace dslaunch
