// How a job ended: from what every node said to one cause and one exit code. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

// What the front end knows of one node when nothing more will come.
struct NodeEnd {
  std::string name;
  bool done = false;                 // it sent NodeDone
  bool teardown_complete = false;    // and said that all nodes are empty
  std::vector<int> left_pids;        // processes it could not end
  std::optional<pb::Cause> outcome;  // as its agent heard it; kind NONE for success
  std::string lost_reason;           // when not done
  std::string last_words;            // of its keeper, when not done; often empty
};

struct JobEnd {
  pb::Cause cause;  // kind NONE for success
  int exit_code = 0;
  std::vector<std::string>
      remarks;  // what else a user must know: processes left, nodes lost besides the cause
};

// `interrupted` is the signal that the user sent to the front end before anything else went wrong.
// The first cause is that, else what the rendezvous decided, else a node that was lost. 0 only when
// every node is done, every rank ended 0 and the teardown was complete.
JobEnd DecideJobEnd(const std::optional<pb::Cause>& interrupted, const std::vector<NodeEnd>& nodes);

}  // namespace dslaunch
