// The command lines of engines that start one program on all nodes at once.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

enum class Engine { kOpenMpi, kPdsh, kSlurm };

// What a step of Slurm's asks for on a node, so that it has all that the allocation has there.
struct SlurmShare {
  int component = -1;  // of a heterogeneous job; -1: the job is not one
  int gpus = 0;
  std::string gres = {};  // with the GPUs, as srun's --gres takes it; empty: none, or not known
  bool operator==(const SlurmShare&) const = default;
};

// Requests of the allocation's that srun would take for its step's. They contradict what
// SlurmShare asks for: a step of --gpus=8 on 2 nodes may get 1 and 4 of 4 and 4.
inline constexpr std::array<const char*, 12> kSlurmRequestVariables = {
    "SLURM_GPUS",     "SLURM_GPUS_PER_NODE",  "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_CPUS_PER_GPU",
    "SLURM_GRES",     "SLURM_STEP_GRES",      "SLURM_TRES_PER_TASK",   "SLURM_TRES_BIND"};

// The engine's program and the user's own arguments for it.
struct EngineWords {
  Engine engine = Engine::kOpenMpi;
  std::vector<std::string> words;  // words[0]: the absolute path
  bool is_root = false;            // which mpirun wants to be told
  bool knows_rcmd = false;         // PDSH_RCMD_TYPE is set: it says how pdsh reaches nodes
  // Of kSlurm: the shares of all nodes of the allocation, by host, and those of
  // kSlurmRequestVariables that are set, as NAME=VALUE, for the ranks.
  std::map<std::string, SlurmShare> shares = {};
  std::vector<std::string> request_variables = {};
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

// The first words of a command line of srun's: srun, without kSlurmRequestVariables.
std::vector<std::string> SrunWords(const EngineWords& engine);

// Options of srun's for one step on `nodes` nodes that have this share. 22.05 counts --gres against
// the mean of an allocation with --gpus, so that of one node is asked for by --gpus.
std::vector<std::string> SlurmShareWords(const SlurmShare& share, size_t nodes);

// The share of a node; an empty one where it is not known.
SlurmShare ShareOf(const EngineWords& engine, const std::string& host);

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
