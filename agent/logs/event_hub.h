// Sends a node's events to all their receivers: the front end that started the job, and viewers
// that attached later. Each receiver has its own EventStream, so a slow receiver does not delay the
// others.
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
#include "proto/contract/status_line.h"

namespace dslaunch {

// Distributes the events of a node to its receivers. All calls are made on the loop's thread.
class EventHub {
 public:
  explicit EventHub(asio::io_context& loop) : loop_(loop), front_end_(loop) {}

  // Connects the front end. It then receives all events since the start, the output of the ranks in
  // `selection`, and `samples`.
  void Attach(RankSelection selection, std::shared_ptr<EventSink> sink,
              const pb::SampleRequest& samples = {});
  // Disconnects the front end, so that no more events are sent to it.
  void Detach();
  void OnWritten(bool ok) { front_end_.OnWritten(ok); }
  // Returns whether the last event was sent to the front end.
  bool ended() const { return front_end_.ended(); }

  // Adds a viewer, which receives the state of the job and then its events. `sink` identifies the
  // viewer in later calls.
  void AddViewer(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink);
  void OnViewerWritten(const EventSink* sink, bool ok);
  void RemoveViewer(const EventSink* sink);
  // Returns whether some viewer has not received the last event.
  bool HasViewers() const;

  // Sends an event to all receivers.
  void Emit(pb::NodeEvent event);
  // Sends a heartbeat to all viewers, and to the front end if `to_front_end`.
  void EmitAlive(bool to_front_end);
  void EmitStatus(uint32_t rank, std::string line, StatusKind kind = StatusKind::kProgress);
  // Sends a sample to the receivers that requested samples.
  void EmitSample(const pb::NodeSample& sample);
  // Returns the request that serves all receivers: the shortest requested interval (0 if no
  // receiver requested samples), and last lines if some receiver requested them.
  pb::SampleRequest WantedSamples() const;
  // Marks the output of all ranks with an earlier FollowRank() as complete, so that it is sent
  // before the output of later ranks.
  void EndAttempt();
  // Follows FOLDER/stdout.log and FOLDER/stderr.log of a rank for the receivers that selected the
  // rank.
  void FollowRank(uint64_t attempt, uint32_t rank, uint32_t local_rank, const std::string& folder);
  void End(const pb::NodeDone& done);

  // Returns whether all workers of all nodes have started in this attempt.
  bool running() const { return running_.has_value(); }
  const std::map<uint32_t, std::string>& newest_status() const { return newest_status_; }

 private:
  struct LogFile : EventStream::LogFile {
    std::string path;
  };
  struct Viewer {
    std::shared_ptr<EventSink> sink;
    RankSelection selection;
    pb::SampleRequest samples;
    std::unique_ptr<EventStream> stream;
  };

  void Remember(const pb::NodeEvent& event);
  void FollowOldFiles(const pb::AttachRequest& request, Viewer& viewer);

  asio::io_context& loop_;
  EventStream front_end_;
  RankSelection front_end_selection_;
  pb::SampleRequest front_end_samples_;
  std::vector<Viewer> viewers_;

  // State of the job, which viewers that attach later receive.
  std::vector<LogFile> files_;
  bool attempt_over_ = false;  // whether the attempt of the newest file is over
  std::optional<pb::NodeEvent> started_;
  std::optional<pb::NodeEvent> running_;
  std::optional<pb::NodeEvent> outcome_;
  std::optional<pb::NodeEvent> goodput_;
  // Event to send while the job stands still; nullopt otherwise.
  std::optional<pb::NodeEvent> standstill_;
  // Newest status line of each rank, without evaluations and copies.
  std::map<uint32_t, std::string> newest_status_;
  std::optional<pb::NodeDone> end_;
};

}  // namespace dslaunch
