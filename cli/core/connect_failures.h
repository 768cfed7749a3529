// Formats the failures of all nodes that cannot be used as one list, with one line for each kind of
// failure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct NodeFailure {
  std::string node;     // name of the node
  std::string host;     // host at which the node is reached; often equal to `node`
  std::string message;  // message of an Error; begins with the node
};

// Returns one line for each kind of failure, in the order of the nodes. The line for one node is
// its message. The line for several nodes begins with their names and number. Messages are of the
// same kind if they differ only in names, addresses and fingerprints. Pure.
std::vector<std::string> FoldFailures(const std::vector<NodeFailure>& failures);

}  // namespace dslaunch
