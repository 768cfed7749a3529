// Formats and parses the lines that a node writes to the stdout of the launcher that started its
// agent (mpirun, pdsh, srun). Such a launcher mixes the lines of all nodes with other output of
// their shells.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct CallBackLine {
  enum class Kind {
    kKey,     // the agent runs; `text` is its public key
    kFailed,  // the node could not get an agent; `text` is the reason
    kEnded,   // all processes of the agent have ended; `text` is the exit code
  };
  Kind kind = Kind::kKey;
  std::string place;  // index or name by which the launcher identifies the node
  std::string text;   // one line, as the node wrote it
  bool operator==(const CallBackLine&) const = default;
};

// Returns a line with its newline: a first word that depends on the kind, the nonce, place and
// text, such as "DSLAUNCH-KEY nonce place text".
std::string FormatCallBackLine(const CallBackLine& line, std::string_view nonce);

// Parses a line without its newline. Ignores text before the first word, because a shell may have
// printed that text without a newline. Returns nullopt if `line` is not a call-back line or has
// another nonce.
std::optional<CallBackLine> ReadCallBackLine(std::string_view line, std::string_view nonce);

}  // namespace dslaunch
