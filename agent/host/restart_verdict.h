// Judges from the text of a failure whether another start of the same program can help. Uses a
// table of texts, in which the first text that applies decides.
#pragma once

#include <string>
#include <string_view>

#include "proto/job.pb.h"

namespace dslaunch {

struct RestartVerdict {
  pb::Cause::Restart restart = pb::Cause::RESTART_UNKNOWN;
  std::string reason = {};  // reason as a clause for users; empty if unknown
  std::string line = {};    // printable line of output that shows the reason
};

// Returns whether a restart can help a program that failed by itself.
//   `signal`      signal that ended the program; 0 if it exited
//   `last_lines`  last lines of its output
//   `evidence`    the program's own error, from ClassifyFailure(); empty if unknown
//   `victim`      whether that error is about another rank
//
// "Cannot help" must be reliable. It needs a text that names a cause which the next start finds
// unchanged, such as a missing module, a wrong shape or a full disk. In the program's own error,
// the type of a Python exception may be enough. In other lines, only a specific text is enough.
// "Can help" needs a text about the network, another rank, a service, or hardware that another node
// or a reset replaces. Everything else is unknown, including lack of memory.
RestartVerdict JudgeRestart(int signal, std::string_view last_lines, std::string_view evidence,
                            bool victim);

}  // namespace dslaunch
