// Decides whether the front end of a job must still wait for its nodes. The decision depends only
// on the front end's view of the nodes.
#pragma once

#include <vector>

namespace dslaunch {

// The front end's view of a node at the end of the job.
struct EndView {
  bool ended = false;         // true if nothing more will arrive from the node
  bool stream_ended = false;  // true if the node reports nothing more; its supervisor may still run
  bool given_up = false;      // true if the other nodes declared the silent node lost
  bool is_part = false;       // true if the node has ranks or may get ranks
};

enum class EndDecision {
  kWait,
  kWaitBriefly,  // the remaining nodes can add little to the report
  kEnd,
};

// Returns whether the session must wait for the node's end without a time limit. This is so if the
// node has ranks or may get ranks and has not ended, unless it is silent and was declared lost.
bool IsNeeded(const EndView& node);

// Returns kEnd if all nodes have ended, kWait if IsNeeded() is true for any node, else
// kWaitBriefly.
EndDecision DecideEnd(const std::vector<EndView>& nodes);

}  // namespace dslaunch
