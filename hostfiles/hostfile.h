// The hostfile: which nodes a job may use and how many ranks each takes. One node a line, in
// DeepSpeed's grammar:
//   # comment
//   node1 slots=2
//   alice@node2:2222 slots=4   # user and SSH port
//   [2001:db8::7]:22 slots=4
//   node3 slots=4 spare=true   # ours: gets ranks only in place of a node that was lost
// Ranks follow the order of the lines.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

inline constexpr int kMaxSlots = 4096;                  // of one node
inline constexpr size_t kMaxHostfileBytes = 16u << 20;  // of a whole file
inline constexpr size_t kMaxHostLineBytes = 1024;

// A node that a job may use: the one form that a node has in the front end, from the hostfile's
// line to the job's last report.
struct Host : NodeTarget {
  int slots = 0;       // 1 .. kMaxSlots
  int line = 0;        // in the file, from 1; 0: from no file
  bool spare = false;  // takes ranks only in place of a node that was lost
  // Of the YAML form.
  std::vector<std::pair<std::string, std::string>> env = {};  // for the ranks of this node
  std::vector<std::pair<std::string, std::string>> labels =
      {};  // shown with the node; nothing acts on them
  // One per slot, ascending, chosen by a filter (host_filter.h); empty: the first ones.
  std::vector<int> devices = {};
};

// Parses a whole hostfile; `path` only appears in messages. Pure, linear in the size of `text`.
// Every error is kBadInput and reads "path:line: 'token': what; hint". A file without any host
// is an error.
Result<std::vector<Host>> ParseHostfile(std::string_view text, const std::string& path);

// Reads and parses `path`, which may be a pipe. Blocks as reading the file does.
Result<std::vector<Host>> ReadHostfile(const std::string& path);

}  // namespace dslaunch
