// Sends a node's events to one receiver, in order and in bounded memory. At most one write is
// pending, and output is read from the ranks' files only when it can be sent.
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

// Receives the events of one stream and writes them, for example to the front end's Run stream.
// Called on the loop's thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Writes one event. The next call follows only after EventStream::OnWritten().
  virtual void Write(pb::NodeEvent event) = 0;
  // Ends the stream. Called after the last Write().
  virtual void Finish() = 0;
};

// A queue of events for one receiver. All calls are made on the loop's thread.
class EventStream {
 public:
  static constexpr uint64_t kMaxLogLagBytes = uint64_t{256} << 20;
  // Time without growth after which a file that ends within a line counts as paused, because the
  // line may be a prompt. The front end cannot know whether the rest of the line is in transit, so
  // the node detects this.
  static constexpr std::chrono::milliseconds kStandstillDelay{200};

  // `max_lag_bytes` limits how far the receiver may be behind the output; earlier output is
  // skipped.
  explicit EventStream(asio::io_context& loop, uint64_t max_lag_bytes = kMaxLogLagBytes);

  // Sends events to `sink` from now on, beginning with the events that were stored before.
  void Attach(std::shared_ptr<EventSink> sink);
  // Stops sending, because the sink can no longer be used.
  void Detach();

  void Emit(pb::NodeEvent event);
  // Sends a heartbeat, unless another heartbeat is waiting to be sent.
  void EmitAlive();
  // Sends a rank's status line. While the receiver lags, stores only each rank's newest line of
  // each kind.
  void EmitStatus(uint32_t rank, std::string line, StatusKind kind = StatusKind::kProgress);
  // Sends a sample. While the receiver lags, stores only the newest sample.
  void EmitSample(const pb::NodeSample& sample);
  // Marks the files followed so far as complete. Their output is sent before the output of files
  // that are followed later.
  void EndAttempt() { log_tail_.RetireFiles(); }
  // Identifies a log file: one stream of one rank in one attempt.
  struct LogFile {
    uint64_t attempt = 0;
    uint32_t rank = 0;
    uint32_t local_rank = 0;
    bool is_stderr = false;
  };
  // Sends the content of the file at `path` from `offset` on, as the rank writes it.
  void Follow(const LogFile& file, const std::string& path, uint64_t offset = 0);

  // Sends the last event after all earlier events and the ranks' output. Call this once.
  void End(pb::NodeDone done);
  bool ended() const { return end_sent_; }

  // Returns the number of events that wait to be sent, not counting output.
  size_t waiting() const { return events_.size(); }

  // Records that the sink has accepted an event or, if `ok` is false, that it accepts no more
  // events.
  void OnWritten(bool ok);

 private:
  struct FollowedFile {
    LogFile file;
    uint64_t end = 0;  // offset up to which the file has been sent
    // Whether the sent part ends within a line and no standstill has been reported since.
    bool within_line = false;
    std::chrono::steady_clock::time_point grew_at;
  };

  void Pump();
  std::optional<pb::NodeEvent> Next();
  std::optional<pb::NodeEvent> NextLog();
  std::optional<pb::NodeEvent> NextStandstill();
  static pb::NodeEvent LogEvent(const FollowedFile& followed);
  void ArmStandstillTimer(std::chrono::steady_clock::time_point due);

  std::vector<FollowedFile> files_;  // log files that are sent, indexed by LogTail's id
  LogTail log_tail_;
  std::shared_ptr<EventSink> sink_;
  bool detached_ = false;
  bool write_in_flight_ = false;
  std::deque<pb::NodeEvent> events_;
  bool alive_due_ = false;
  // Report that waits to be sent; nullopt if none does.
  std::optional<pb::NodeEvent> newest_goodput_;
  // Unsent status events: the newest of each rank and kind.
  std::map<std::pair<uint32_t, StatusKind>, pb::NodeEvent> newest_status_;
  std::optional<pb::NodeEvent> newest_sample_;
  std::optional<pb::NodeDone> end_;
  bool end_sent_ = false;
  asio::steady_timer standstill_timer_;
  std::shared_ptr<bool> standstill_armed_ = std::make_shared<bool>(false);
};

}  // namespace dslaunch
