// Formats the nodes that cannot be used: one list of all, with one line for each kind of failure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct NodeFailure {
  std::string node;     // its name
  std::string host;     // how it is reached; often the same
  std::string message;  // an Error's: begins with the node
};

// One line for each kind of trouble, in the order of the nodes. A trouble of one node is its
// message as it is; that of several begins with their names and how many they are, and where their
// messages differ in more than names, addresses and fingerprints they are not the same. Pure.
std::vector<std::string> FoldFailures(const std::vector<NodeFailure>& failures);

}  // namespace dslaunch
