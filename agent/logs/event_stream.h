// What a node tells the front end, in order and without growing: one write at a time, output read
// from the ranks' files only when there is room for it.
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

namespace dslaunch {

// Where the events go: the front end's Run stream. Called on the loop's thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // One at a time: the next only after EventStream::OnWritten.
  virtual void Write(pb::NodeEvent event) = 0;
  // After the last event.
  virtual void Finish() = 0;
};

// All on the loop's thread.
class EventStream {
 public:
  static constexpr uint64_t kMaxLogLagBytes = uint64_t{256} << 20;
  // A file that ends within a line and has not grown for this long stands still: the line may be a
  // prompt. Only the node can tell; at the front end the rest may just be under way.
  static constexpr std::chrono::milliseconds kStandstillDelay{200};

  // A reader more than `max_lag_bytes` behind a file skips through it.
  explicit EventStream(asio::io_context& loop, uint64_t max_lag_bytes = kMaxLogLagBytes);

  // Sends to `sink` from now on. Until then events wait.
  void Attach(std::shared_ptr<EventSink> sink);
  // The sink is gone: nothing is sent any more.
  void Detach();

  void Emit(pb::NodeEvent event);
  // A sign of life; one that was not sent yet is enough.
  void EmitAlive();
  // A rank's status line. While the front end lags only each rank's newest is kept, and its newest
  // of an evaluation.
  void EmitStatus(uint32_t rank, std::string line, bool is_evaluation = false);
  // The ranks followed so far write no more: what they wrote goes out before what is followed from
  // now on.
  void EndAttempt() { log_tail_.RetireFiles(); }
  // Whose output a file has.
  struct LogFile {
    uint64_t attempt = 0;
    uint32_t rank = 0;
    uint32_t local_rank = 0;
    bool is_stderr = false;
  };
  // Sends what a rank writes to the file at `path`, from `offset`.
  void Follow(const LogFile& file, const std::string& path, uint64_t offset = 0);

  // The last event; it goes out once everything before it has, the ranks' output included. Once.
  void End(pb::NodeDone done);
  bool ended() const { return end_sent_; }

  // Events that the sink has not taken yet, output aside.
  size_t waiting() const { return events_.size(); }

  // The sink has taken the last event, or will take no more.
  void OnWritten(bool ok);

 private:
  struct FollowedFile {
    LogFile file;
    uint64_t end = 0;          // of what was sent
    bool within_line = false;  // it ends there, and no standstill was reported since
    std::chrono::steady_clock::time_point grew_at;
  };

  void Pump();
  std::optional<pb::NodeEvent> Next();
  std::optional<pb::NodeEvent> NextLog();
  std::optional<pb::NodeEvent> NextStandstill();
  static pb::NodeEvent LogEvent(const FollowedFile& followed);
  void ArmStandstillTimer(std::chrono::steady_clock::time_point due);

  std::vector<FollowedFile> files_;  // by LogTail's id
  LogTail log_tail_;
  std::shared_ptr<EventSink> sink_;
  bool detached_ = false;
  bool write_in_flight_ = false;
  std::deque<pb::NodeEvent> events_;
  bool alive_due_ = false;
  std::map<std::pair<uint32_t, bool>, pb::NodeEvent> newest_status_;  // by rank and is_evaluation
  std::optional<pb::NodeDone> end_;
  bool end_sent_ = false;
  asio::steady_timer standstill_timer_;
  std::shared_ptr<bool> standstill_armed_ = std::make_shared<bool>(false);
};

}  // namespace dslaunch
