// Lines that a node writes to the stdout of the engine that started it (mpirun, pdsh, srun). The
// engine mixes the lines of all nodes and other output of their shells.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct EngineLine {
  enum class Kind {
    kDial,    // the agent is ready; text: the public key with which it connects
    kFailed,  // the node has no agent and could not get one; text: why
    kEnded,   // no process started by the agent is left; text: its exit code
  };
  Kind kind = Kind::kDial;
  std::string place;  // number or name of the node in its engine
  std::string text;   // one line, as the node wrote it
  bool operator==(const EngineLine&) const = default;
};

// Returns the line with its newline, such as `DSLAUNCH-DIAL nonce place text`.
std::string FormatEngineLine(const EngineLine& line, std::string_view nonce);

// Parses a line without its newline. Ignores text before the first keyword, because a shell may
// print text without a newline. Returns nullopt for other output and for lines of another start.
std::optional<EngineLine> ReadEngineLine(std::string_view line, std::string_view nonce);

}  // namespace dslaunch
