// What a node writes to the stdout of the launcher that started its agent (mpirun, pdsh, srun). A
// launcher mixes the lines of all nodes with whatever else their shells print.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct CallBackLine {
  enum class Kind {
    kKey,     // the agent runs; text: the public key with which it connects
    kFailed,  // the node has no agent and could not get one; text: why
    kEnded,   // nothing that the agent started is left; text: its exit code
  };
  Kind kind = Kind::kKey;
  std::string place;  // index or name that the launcher gives the node
  std::string text;   // one line, as the node wrote it
  bool operator==(const CallBackLine&) const = default;
};

// Returns `DSLAUNCH-KEY nonce place text` with a newline; the first word depends on the kind.
std::string FormatCallBackLine(const CallBackLine& line, std::string_view nonce);

// Reads a line without its newline. Text before the first word is ignored, because a shell may have
// printed it without a newline. nullopt: not such a line, or one of another start.
std::optional<CallBackLine> ReadCallBackLine(std::string_view line, std::string_view nonce);

}  // namespace dslaunch
