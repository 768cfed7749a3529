// Classifies the error that a failed program printed or wrote to a file, in particular whether the
// error is about another rank.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "proto/job.pb.h"

namespace dslaunch {

// Limit of error.json; a larger file is not read.
inline constexpr size_t kMaxErrorFileBytes = size_t{1} << 20;

struct FailureEvidence {
  bool victim = false;  // whether the error is about another rank
  // Kind of the other rank's failure; set for victims.
  pb::Cause::PeerFault peer_fault = pb::Cause::GONE;
  // The line that shows that the rank is a victim, or else the program's own error, as one
  // printable line; empty if there is no such line.
  std::string line = {};
};

// Returns the message in an error file of torchelastic's @record; nullopt if the text is not such a
// file.
std::optional<std::string> ReadErrorFile(std::string_view json);

// Returns how a failure is classified: by the error file's message if there is one, else by the
// root exception of the last Python traceback, else by the uncaught C++ exception, else by any of
// the last lines. A program that a signal other than SIGABRT ended is not a victim, because no
// library raises such a signal for a lost peer.
//   `last_lines`     last lines of the program's output
//   `error_message`  result of ReadErrorFile(); empty if there is none
FailureEvidence ClassifyFailure(int signal, std::string_view last_lines,
                                std::string_view error_message);

// Returns the error of a program that failed by itself while it was being stopped. The error is the
// message in its error file, the root exception of its last Python traceback, or the uncaught C++
// exception. Returns nullopt if the program reported no error, or only an error that the stop (an
// interrupt) or the end of another rank caused.
std::optional<std::string> ErrorBeforeStop(std::string_view last_lines,
                                           std::string_view error_message);

}  // namespace dslaunch
