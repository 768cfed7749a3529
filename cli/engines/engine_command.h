// The command lines of engines that start one program on all nodes at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/node_target.h"

namespace dslaunch {

enum class Engine { kOpenMpi, kPdsh, kSlurm };

// The engine's program and the user's own arguments for it.
struct EngineWords {
  Engine engine = Engine::kOpenMpi;
  std::vector<std::string> words;  // words[0]: the absolute path
  bool is_root = false;            // which mpirun wants to be told
  bool knows_rcmd = false;         // PDSH_RCMD_TYPE is set: it says how pdsh reaches nodes
};

// Checks that the engine can name each of these nodes. kUsage.
Result<void> CheckEngineNodes(Engine engine, const std::vector<NodeTarget>& nodes);

// What a node's place is made from in a script, by the engine or by the node's shell.
std::string_view PlaceIn(Engine engine);

// The arguments that run `script` on each node, by its /bin/sh; PlaceIn becomes a text there from
// which NodeOfPlace finds the node.
std::vector<std::string> EngineCommandLine(const EngineWords& engine,
                                           const std::vector<NodeTarget>& nodes,
                                           const std::string& script);

// The node of a place: its number, of Slurm its name; nullopt: there is none.
std::optional<size_t> NodeOfPlace(Engine engine, const std::string& place,
                                  const std::vector<NodeTarget>& nodes);

// What pdsh says on stderr as soon as its command for a node has failed, its own prefix left out:
// "ssh exited with exit code 255".
struct PdshFailure {
  size_t index = 0;  // of the node
  std::string text;
  bool operator==(const PdshFailure&) const = default;
};

// nullopt: the line is none of these.
std::optional<PdshFailure> ReadPdshFailure(std::string_view line,
                                           const std::vector<NodeTarget>& nodes);

// What srun wrote to stderr without its remarks on a Slurm that does not bind tasks, which is what
// dslaunch wants.
std::string WithoutSrunRemarks(std::string_view words);

// A command line by which the user can try the same, for messages.
std::string EngineTryThis(const EngineWords& engine, const NodeTarget& node);

}  // namespace dslaunch
