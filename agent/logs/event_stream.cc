#include "agent/logs/event_stream.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kLogChunkBytes = 256 << 10;

}  // namespace

EventStream::EventStream(asio::io_context& loop, uint64_t max_lag_bytes)
    : log_tail_(
          loop, [this] { Pump(); }, max_lag_bytes),
      standstill_timer_(loop) {}

void EventStream::Attach(std::shared_ptr<EventSink> sink) {
  sink_ = std::move(sink);
  Pump();
}

void EventStream::Detach() {
  detached_ = true;
  sink_.reset();
  events_.clear();
  newest_status_.clear();
  newest_sample_.reset();
}

void EventStream::Emit(pb::NodeEvent event) {
  if (detached_) return;
  if (event.has_goodput())
    newest_goodput_ = std::move(event);  // replaces a report that was not sent yet
  else
    events_.push_back(std::move(event));
  Pump();
}

void EventStream::EmitAlive() {
  if (detached_) return;
  alive_due_ = true;
  Pump();
}

void EventStream::EmitStatus(uint32_t rank, std::string line, StatusKind kind) {
  if (detached_) return;
  pb::NodeEvent event;
  event.mutable_status()->set_rank(rank);
  event.mutable_status()->set_line(std::move(line));
  newest_status_.insert_or_assign({rank, kind}, std::move(event));
  Pump();
}

void EventStream::EmitSample(const pb::NodeSample& sample) {
  if (detached_) return;
  *newest_sample_.emplace().mutable_sample() = sample;
  Pump();
}

void EventStream::Follow(const LogFile& file, const std::string& path, uint64_t offset) {
  if (detached_) return;
  files_.push_back({.file = file, .end = offset, .grew_at = {}});
  log_tail_.AddFile(static_cast<int>(files_.size() - 1), path, offset);
}

void EventStream::End(pb::NodeDone done) {
  if (!end_) end_ = std::move(done);
  Pump();
}

void EventStream::OnWritten(bool ok) {
  write_in_flight_ = false;
  if (!ok) return Detach();
  if (end_sent_) {
    if (sink_) sink_->Finish();
    return Detach();
  }
  Pump();
}

void EventStream::Pump() {
  if (!sink_ || write_in_flight_ || end_sent_) return;
  std::optional<pb::NodeEvent> next = Next();
  if (!next) return;
  write_in_flight_ = true;
  sink_->Write(*std::move(next));
}

std::optional<pb::NodeEvent> EventStream::Next() {
  std::optional<pb::NodeEvent> next;
  if (!events_.empty()) {
    next = std::move(events_.front());
    events_.pop_front();
    return next;
  }
  if (std::exchange(alive_due_, false)) {
    next.emplace().mutable_alive();
    return next;
  }
  if (newest_goodput_) return std::exchange(newest_goodput_, std::nullopt);
  if (!newest_status_.empty()) {
    return std::move(newest_status_.extract(newest_status_.begin()).mapped());
  }
  if (newest_sample_) return std::exchange(newest_sample_, std::nullopt);
  next = NextLog();
  if (next || !end_) return next;
  next.emplace();
  *next->mutable_done() = *std::move(end_);
  end_sent_ = true;
  return next;
}

std::optional<pb::NodeEvent> EventStream::NextLog() {
  std::optional<LogTail::Chunk> chunk = log_tail_.Next(kLogChunkBytes);
  if (!chunk) return NextStandstill();
  FollowedFile& followed = files_[static_cast<size_t>(chunk->id)];
  followed.end = chunk->offset;
  std::optional<pb::NodeEvent> event = LogEvent(followed);
  followed.end += chunk->data.size();
  if (!chunk->data.empty()) {
    followed.within_line = chunk->data.back() != '\n' && chunk->data.back() != '\r';
    followed.grew_at = std::chrono::steady_clock::now();
  }
  event->mutable_log()->set_skipped_bytes(chunk->skipped_bytes);
  event->mutable_log()->set_data(std::move(chunk->data));
  return event;
}

// Returns an event for a file whose output has paused within a line for kStandstillDelay, so that
// the receiver shows the unfinished line. Returns nullopt if there is no such file. Called once all
// output has been sent. Unfinished lines of earlier attempts were shown when the newest attempt
// began, so only files of the newest attempt count.
std::optional<pb::NodeEvent> EventStream::NextStandstill() {
  const auto now = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> next_due;
  for (FollowedFile& followed : files_) {
    if (!followed.within_line || followed.file.attempt != files_.back().file.attempt) continue;
    const auto due = followed.grew_at + kStandstillDelay;
    if (due <= now) {
      followed.within_line = false;
      std::optional<pb::NodeEvent> event = LogEvent(followed);
      event->mutable_log()->set_stands_still(true);
      return event;
    }
    next_due = std::min(next_due.value_or(due), due);
  }
  if (next_due) ArmStandstillTimer(*next_due);
  return std::nullopt;
}

pb::NodeEvent EventStream::LogEvent(const FollowedFile& followed) {
  pb::NodeEvent event;
  pb::LogChunk& log = *event.mutable_log();
  log.set_attempt(followed.file.attempt);
  log.set_rank(followed.file.rank);
  log.set_local_rank(followed.file.local_rank);
  log.set_is_stderr(followed.file.is_stderr);
  log.set_offset(followed.end);
  return event;
}

void EventStream::ArmStandstillTimer(std::chrono::steady_clock::time_point due) {
  if (std::exchange(*standstill_armed_, true)) return;
  standstill_timer_.expires_at(due);
  standstill_timer_.async_wait(
      [this, armed = std::weak_ptr(standstill_armed_)](const asio::error_code&) {
        const std::shared_ptr<bool> mine = armed.lock();
        if (!mine) return;  // the stream was destroyed in the meantime
        *mine = false;
        Pump();
      });
}

}  // namespace dslaunch
