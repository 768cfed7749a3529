// Formats a hostfile, or a table about a hostfile, from the nodes' answers. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// A node of a hostfile, with its answer to an inspection.
struct AskedHost {
  Host host;
  std::optional<Error> failure;  // error of the node; if set, the other fields are not valid
  int gpus = 0;                  // number of GPUs that a job would see
  std::string gpu_name;          // name of the first GPU
  std::string gpu_noun = "GPU";  // word for the node's accelerators, such as "NPU"
  int cores = 0;
  uint64_t memory_bytes = 0;
};

// Returns a hostfile that gives each node as many slots as it has GPUs, or cores if it has no GPU.
// Precondition: no host has failed.
std::string WriteHostfileText(const std::vector<AskedHost>& hosts, bool yaml);

// Returns why a job on all slots of this node would fail; "" if it would not fail.
std::string SlotProblem(const AskedHost& host);

// Returns a table with the answer or the error of each node.
std::string HostTable(const std::vector<AskedHost>& hosts);

// Returns the answers as JSON; `file` is the name of the hostfile.
std::string HostsJson(const std::string& file, const std::vector<AskedHost>& hosts);

}  // namespace dslaunch
