#include "cli/core/event_text.h"

#include "base/text/signal_name.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

std::string StartedText(const pb::Started& started) {
  std::string text = "attempt " + std::to_string(started.attempt()) + ": ";
  if (started.pids_size() == 0) return text + "it has no ranks";
  for (int i = 0; i < started.pids_size(); ++i) {
    text += (i == 0 ? "rank " : ", rank ") +
            std::to_string(started.first_rank() + static_cast<uint32_t>(i)) + " pid " +
            std::to_string(started.pids(i));
  }
  return text + ", MASTER_ADDR=" + started.master_addr() + ":" +
         std::to_string(started.master_port());
}

std::string EndedText(const pb::WorkerEnded& ended) {
  return "rank " + std::to_string(ended.rank()) +
         (ended.signal() != 0 ? " was ended by " + SignalName(ended.signal())
                              : " exited with code " + std::to_string(ended.exit_code())) +
         (ended.stopping() ? " when it was told to stop" : "");
}

}  // namespace

std::string EventText(const std::string& node, const pb::NodeEvent& event) {
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      return node + ": " + StartedText(event.started());
    case pb::NodeEvent::kRunning:
      return node + ": every rank of attempt " + std::to_string(event.running().attempt()) +
             " is started";
    case pb::NodeEvent::kWorkerEnded:
      return node + ": " + EndedText(event.worker_ended());
    case pb::NodeEvent::kOutcome:
      return node + ": attempt " + std::to_string(event.outcome().attempt()) +
             " finished: " + CauseText(event.outcome().cause());
    case pb::NodeEvent::kDone:
      return node + ": " +
             (event.done().left_size() == 0 ? "torn down, no processes left"
                                            : "processes are left that could not be ended");
    default:
      return "";
  }
}

}  // namespace dslaunch
