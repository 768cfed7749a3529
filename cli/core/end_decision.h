// Decides whether the front end of a job must still wait for its nodes. Pure: the input is the
// front end's view of the nodes.
#pragma once

#include <vector>

namespace dslaunch {

// The front end's view of one node.
struct EndView {
  bool ended = false;         // nothing more will arrive from the node
  bool stream_ended = false;  // the node reports nothing more; its supervisor may still run
  bool given_up = false;      // the other nodes declared the silent node lost
  bool is_part = false;       // the node has ranks, or may get some
};

enum class EndDecision {
  kWait,
  kWaitBriefly,  // the remaining nodes can add little to the report
  kEnd,
};

// Returns whether the session must wait for the node's end, however long that takes.
bool IsNeeded(const EndView& node);

EndDecision DecideEnd(const std::vector<EndView>& nodes);

}  // namespace dslaunch
