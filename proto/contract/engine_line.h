// What a node writes to the stdout of the engine that started it (mpirun, pdsh, srun), which mixes
// the lines of all nodes and whatever else their shells print.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct EngineLine {
  enum class Kind {
    kDial,    // the agent is there; text: the public key with which it connects
    kFailed,  // the node has no agent and could get none; text: why
    kEnded,   // nothing that the agent started is left; text: its exit code
  };
  Kind kind = Kind::kDial;
  std::string place;  // of the node, as its engine numbers or names it
  std::string text;   // one line, as the node wrote it
  bool operator==(const EngineLine&) const = default;
};

// `DSLAUNCH-DIAL nonce place text`, with a newline.
std::string FormatEngineLine(const EngineLine& line, std::string_view nonce);

// A line without its newline; what is before the first word is left out, as a shell that printed no
// newline leaves it. nullopt: noise, or of another start.
std::optional<EngineLine> ReadEngineLine(std::string_view line, std::string_view nonce);

}  // namespace dslaunch
