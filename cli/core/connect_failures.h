// Formats the nodes that cannot be used: one list of all, with one line for each kind of failure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct NodeFailure {
  std::string node;     // name of the node
  std::string host;     // host at which the node is reached; often equal to `node`
  std::string message;  // an Error's: begins with the node
};

// Returns one line for each kind of failure, in the order of the nodes. The failure of one node is
// its message; a line for several begins with their names and number. Messages are of one kind if
// they differ only in names, addresses and fingerprints. Pure.
std::vector<std::string> FoldFailures(const std::vector<NodeFailure>& failures);

}  // namespace dslaunch
