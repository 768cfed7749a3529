// Formats and parses the lines that a node writes to the stdout of the launcher that started its
// agent (mpirun, pdsh, srun). A launcher mixes the lines of all nodes with the other output of
// their shells.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct CallBackLine {
  enum class Kind {
    kKey,     // the agent runs; `text` is the public key with which it connects
    kFailed,  // the node has no agent and could not get one; `text` is the reason
    kEnded,   // no process that the agent started is left; `text` is the exit code
  };
  Kind kind = Kind::kKey;
  std::string place;  // index or name that the launcher gives to the node
  std::string text;   // one line, as the node wrote it
  bool operator==(const CallBackLine&) const = default;
};

// Returns "DSLAUNCH-KEY nonce place text" with a newline. The first word depends on the kind.
std::string FormatCallBackLine(const CallBackLine& line, std::string_view nonce);

// Parses a line without its newline. Ignores text before the first word, because a shell may have
// printed it without a newline. Returns nullopt if this is not such a line or if it has another
// nonce.
std::optional<CallBackLine> ReadCallBackLine(std::string_view line, std::string_view nonce);

}  // namespace dslaunch
