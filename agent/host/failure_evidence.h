// What a failed program reported itself: its error, and whether that error is about another rank.
// Pure, text in.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "proto/job.pb.h"

namespace dslaunch {

inline constexpr size_t kMaxErrorFileBytes = size_t{1} << 20;  // a longer one is not read

struct FailureEvidence {
  bool victim = false;                                // the error is about another rank
  pb::Cause::PeerFault peer_fault = pb::Cause::GONE;  // of a victim
  // The line that makes it a victim, or the program's own error; one line, printable. Empty: there
  // is none.
  std::string line = {};
};

// The message in the error file that torchelastic's @record writes; nullopt when it is none.
std::optional<std::string> ReadErrorFile(std::string_view json);

// Judges by the error file's message where there is one, else by the first exception of the last
// Python traceback, else by the exception that C++ did not catch, else by any of the last lines.
// Programs that a signal other than SIGABRT ended
// are no victims: no library sends those for a lost peer.
//   `last_lines`     of what the program wrote
//   `error_message`  as ReadErrorFile returns it; empty: none
FailureEvidence ClassifyFailure(int signal, std::string_view last_lines,
                                std::string_view error_message);

// The error of a program that ended while it was being stopped, where it had failed by itself: its
// error file's message, or the first exception of its last Python traceback, or the one that C++
// did not catch. nullopt: it gave none, or one that follows from the stop (an interrupt) or from
// another rank's end.
std::optional<std::string> ErrorBeforeStop(std::string_view last_lines,
                                           std::string_view error_message);

}  // namespace dslaunch
