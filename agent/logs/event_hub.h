// The receivers of a node's events: the front end that started the job, and viewers that attached
// later. Each has an EventStream of its own, so that none waits for another.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/logs/event_stream.h"
#include "agent/logs/rank_selection.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// All on the loop's thread.
class EventHub {
 public:
  explicit EventHub(asio::io_context& loop) : loop_(loop), front_end_(loop) {}

  // The front end. Until it is there events wait for it.
  void Attach(RankSelection selection, std::shared_ptr<EventSink> sink);
  // It is gone: nothing is sent to it any more.
  void Detach() { front_end_.Detach(); }
  void OnWritten(bool ok) { front_end_.OnWritten(ok); }
  // It has been sent the last event.
  bool ended() const { return front_end_.ended(); }

  // Adds a viewer, which gets the state of the job and then its events. Its sink names it.
  void AddViewer(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink);
  void OnViewerWritten(const EventSink* sink, bool ok);
  void RemoveViewer(const EventSink* sink);
  // Some viewer has not got the last event yet.
  bool HasViewers() const;

  // To all receivers.
  void Emit(pb::NodeEvent event);
  // To all viewers, and to the front end where it is so.
  void EmitAlive(bool to_front_end);
  void EmitStatus(uint32_t rank, std::string line, bool is_evaluation = false);
  // The ranks followed so far write no more.
  void EndAttempt();
  // A rank writes to FOLDER/stdout.log and FOLDER/stderr.log: receivers that selected it get it.
  void FollowRank(uint64_t attempt, uint32_t rank, uint32_t local_rank, const std::string& folder);
  void End(const pb::NodeDone& done);

  // Every worker of every node of the attempt was started.
  bool running() const { return running_.has_value(); }
  const std::map<uint32_t, std::string>& newest_status() const { return newest_status_; }

 private:
  struct LogFile : EventStream::LogFile {
    std::string path;
  };
  struct Viewer {
    std::shared_ptr<EventSink> sink;
    RankSelection selection;
    std::unique_ptr<EventStream> stream;
  };

  void Remember(const pb::NodeEvent& event);
  void FollowOldFiles(const pb::AttachRequest& request, Viewer& viewer);

  asio::io_context& loop_;
  EventStream front_end_;
  RankSelection front_end_selection_;
  std::vector<Viewer> viewers_;

  // How things stand, for viewers that come later.
  std::vector<LogFile> files_;  // of all attempts, oldest first
  bool attempt_over_ = false;   // of the newest file
  std::optional<pb::NodeEvent> started_;
  std::optional<pb::NodeEvent> running_;
  std::optional<pb::NodeEvent> outcome_;
  std::map<uint32_t, std::string> newest_status_;  // by rank; of no evaluation
  std::optional<pb::NodeDone> end_;
};

}  // namespace dslaunch
