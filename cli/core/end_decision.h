// Decides whether the front end of a job still waits for its nodes. Pure: the input is the front
// end's view of the nodes.
#pragma once

#include <vector>

namespace dslaunch {

// The front end's view of one node.
struct EndView {
  bool ended = false;         // nothing more will arrive from the node
  bool stream_ended = false;  // the node reports nothing more; its supervisor may still run
  bool given_up = false;      // the other nodes declared the silent node lost
  bool is_part = false;       // has ranks, or may get some
};

enum class EndDecision {
  kWait,
  kWaitBriefly,  // the nodes that are left can add little
  kEnd,
};

// Its end is waited for, however long it takes.
bool IsNeeded(const EndView& node);

EndDecision DecideEnd(const std::vector<EndView>& nodes);

}  // namespace dslaunch
