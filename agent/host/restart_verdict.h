// Judges from the text of a failure whether another start of the same program can help. Pure and
// deterministic: a table of texts, of which the first that applies counts.
#pragma once

#include <string>
#include <string_view>

#include "proto/job.pb.h"

namespace dslaunch {

struct RestartVerdict {
  pb::Cause::Restart restart = pb::Cause::RESTART_UNKNOWN;
  std::string reason = {};  // a clause for users; empty if unknown
  std::string line = {};    // the line that shows it, printable
};

// Judges a program that failed by itself.
//   `signal`      that ended it; 0: it exited
//   `last_lines`  of its output
//   `evidence`    the program's own error, of ClassifyFailure(); empty: none is known
//   `victim`      whether that is about another rank
//
// "Cannot help" is meant to be right: it needs a text that names a cause which the next start finds
// unchanged, such as a missing module, a wrong shape or a full disk. Of the program's own error the
// type of a Python exception may be enough; of the other lines only a text that is specific.
// "Can help" needs a text about the network, another rank, a service, or hardware that another node
// or a reset replaces. Everything else is unknown, among it running out of memory.
RestartVerdict JudgeRestart(int signal, std::string_view last_lines, std::string_view evidence,
                            bool victim);

}  // namespace dslaunch
