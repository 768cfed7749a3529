// Classifies a failed program's own error report, in particular whether the error is about another
// rank.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "proto/job.pb.h"

namespace dslaunch {

inline constexpr size_t kMaxErrorFileBytes = size_t{1} << 20;  // larger files are not read

struct FailureEvidence {
  bool victim = false;                                // true if the error is about another rank
  pb::Cause::PeerFault peer_fault = pb::Cause::GONE;  // set for victims
  // The line that shows that the rank is a victim, or else the program's own error, as one
  // printable line. Empty if there is no such line.
  std::string line = {};
};

// Returns the message in the error file of torchelastic's @record, or nullopt if the text is not
// such a file.
std::optional<std::string> ReadErrorFile(std::string_view json);

// Classifies a failure by the error file's message if there is one, else by the root exception of
// the last Python traceback, else by the uncaught C++ exception, else by any of the last lines. A
// program that a signal other than SIGABRT ended is not a victim, because no library raises such a
// signal for a lost peer.
//   `last_lines`     last lines of the program's output
//   `error_message`  result of ReadErrorFile(); empty if there is none
FailureEvidence ClassifyFailure(int signal, std::string_view last_lines,
                                std::string_view error_message);

// Returns the error of a program that failed by itself while it was being stopped: its error file's
// message, the root exception of its last Python traceback, or the uncaught C++ exception. Returns
// nullopt if it reported no error, or only one caused by the stop (an interrupt) or by another
// rank's end.
std::optional<std::string> ErrorBeforeStop(std::string_view last_lines,
                                           std::string_view error_message);

}  // namespace dslaunch
