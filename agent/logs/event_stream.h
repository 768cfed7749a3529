// Sends a node's events to one receiver, in order and in bounded memory. One write is pending at a
// time, and output is read from the ranks' files only when it can be sent.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/logs/log_tail.h"
#include "proto/agent.pb.h"
#include "proto/contract/status_line.h"

namespace dslaunch {

// Receives the events of one stream, such as the front end's Run stream. Called on the loop's
// thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Writes one event. The next call follows only after EventStream::OnWritten().
  virtual void Write(pb::NodeEvent event) = 0;
  // Ends the stream. Called after the last event.
  virtual void Finish() = 0;
};

// A queue of events for one receiver. All calls are on the loop's thread.
class EventStream {
 public:
  static constexpr uint64_t kMaxLogLagBytes = uint64_t{256} << 20;
  // If a file ends within a line and has not grown for this long, its writer has paused: the line
  // may be a prompt. Only the node can detect this, because for the front end the rest of the line
  // may be in transit.
  static constexpr std::chrono::milliseconds kStandstillDelay{200};

  // Skips output that is more than `max_lag_bytes` ahead of the reader.
  explicit EventStream(asio::io_context& loop, uint64_t max_lag_bytes = kMaxLogLagBytes);

  // Sends events to `sink` from now on. Earlier events have been kept for the sink.
  void Attach(std::shared_ptr<EventSink> sink);
  // Stops sending, because the sink is no longer usable.
  void Detach();

  void Emit(pb::NodeEvent event);
  // Sends a heartbeat, unless one is still waiting to be sent.
  void EmitAlive();
  // Sends a rank's status line. While the receiver lags, only each rank's newest line and its
  // newest evaluation are kept.
  void EmitStatus(uint32_t rank, std::string line, StatusKind kind = StatusKind::kProgress);
  // Sends a sample. While the receiver lags, only the newest sample is kept.
  void EmitSample(const pb::NodeSample& sample);
  // Reports that the ranks followed so far have written all their output. The report is sent before
  // the output of files followed later.
  void EndAttempt() { log_tail_.RetireFiles(); }
  // Identifies the output in a file.
  struct LogFile {
    uint64_t attempt = 0;
    uint32_t rank = 0;
    uint32_t local_rank = 0;
    bool is_stderr = false;
  };
  // Sends what a rank writes to the file at `path`, from `offset` on.
  void Follow(const LogFile& file, const std::string& path, uint64_t offset = 0);

  // Sends the last event after everything before it, including the ranks' output. Call once.
  void End(pb::NodeDone done);
  bool ended() const { return end_sent_; }

  // Returns the number of events that the sink has not accepted yet, without output.
  size_t waiting() const { return events_.size(); }

  // Reports that the sink has accepted the last event or, if `ok` is false, accepts no more events.
  void OnWritten(bool ok);

 private:
  struct FollowedFile {
    LogFile file;
    uint64_t end = 0;  // offset of the end of the sent part
    // True if the sent part ends within a line, and no standstill has been reported since.
    bool within_line = false;
    std::chrono::steady_clock::time_point grew_at;
  };

  void Pump();
  std::optional<pb::NodeEvent> Next();
  std::optional<pb::NodeEvent> NextLog();
  std::optional<pb::NodeEvent> NextStandstill();
  static pb::NodeEvent LogEvent(const FollowedFile& followed);
  void ArmStandstillTimer(std::chrono::steady_clock::time_point due);

  std::vector<FollowedFile> files_;  // indexed by LogTail's id
  LogTail log_tail_;
  std::shared_ptr<EventSink> sink_;
  bool detached_ = false;
  bool write_in_flight_ = false;
  std::deque<pb::NodeEvent> events_;
  bool alive_due_ = false;
  std::optional<pb::NodeEvent> newest_goodput_;                             // not sent yet
  std::map<std::pair<uint32_t, StatusKind>, pb::NodeEvent> newest_status_;  // newest of each kind
  std::optional<pb::NodeEvent> newest_sample_;
  std::optional<pb::NodeDone> end_;
  bool end_sent_ = false;
  asio::steady_timer standstill_timer_;
  std::shared_ptr<bool> standstill_armed_ = std::make_shared<bool>(false);
};

}  // namespace dslaunch
