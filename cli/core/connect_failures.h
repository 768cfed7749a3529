// Formats the failures of all nodes that cannot be used as a list with one line for each kind of
// failure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct NodeFailure {
  std::string node;
  std::string host;     // host at which the node is reached; often equal to `node`
  std::string message;  // text of the Error; begins with the node
};

// Returns one line for each kind of failure, in the order of the nodes. A line for a single node is
// its message. A line for several nodes begins with their names and number. Messages are of the
// same kind if they differ only in names, addresses and fingerprints. Has no side effects.
std::vector<std::string> FoldFailures(const std::vector<NodeFailure>& failures);

}  // namespace dslaunch
