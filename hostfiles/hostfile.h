// Parses hostfiles, which list the nodes that a job may use and the number of ranks on each. A line
// describes one node in DeepSpeed's grammar:
//   # comment
//   node1 slots=2
//   alice@node2:2222 slots=4   # user and SSH port
//   [2001:db8::7]:22 slots=4
//   node3 slots=4 spare=true   # dslaunch's extension: gets ranks only if another node is lost
// Ranks follow the order of the lines.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

inline constexpr int kMaxSlots = 4096;                  // maximum number of slots of a node
inline constexpr size_t kMaxHostfileBytes = 16u << 20;  // maximum size of a hostfile, in bytes
inline constexpr size_t kMaxHostLineBytes = 1024;

// A node that a job may use. The front end represents a node in this form only, from the hostfile's
// line to the job's last report.
struct Host : NodeTarget {
  int slots = 0;       // number of slots, from 1 to kMaxSlots
  int line = 0;        // line in the file, from 1; 0 if the host came from no file
  bool spare = false;  // whether the host gets ranks only after another node is lost
  // Environment variables for the ranks of this node. Set only by the YAML format.
  std::vector<std::pair<std::string, std::string>> env = {};
  // Labels to show with the node. Set only by the YAML format.
  std::vector<std::pair<std::string, std::string>> labels = {};
  // Devices that a filter chose (host_filter.h), one per slot, ascending; if empty, the first
  // devices are used.
  std::vector<int> devices = {};
};

// Parses a whole hostfile; `path` is used in messages only. Fails with kBadInput and the message
// "path:line: 'token': what; hint", also if there are no hosts. Pure; takes time linear in the size
// of `text`.
Result<std::vector<Host>> ParseHostfile(std::string_view text, const std::string& path);

// Reads and parses the file at `path`, which may be a pipe. Blocks while reading.
Result<std::vector<Host>> ReadHostfile(const std::string& path);

}  // namespace dslaunch
