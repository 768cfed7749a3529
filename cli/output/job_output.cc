#include "cli/output/job_output.h"

#include <fcntl.h>

#include <algorithm>

#include "proto/contract/status_line.h"

namespace dslaunch {
namespace {

constexpr size_t kEnoughPendingBytes = 256 << 10;
// A slow reader is awaited; this is how often it is tried beside that.
constexpr milliseconds kSlowReaderPoll(200);
constexpr std::chrono::seconds kReaderPatience(60);

}  // namespace

JobOutput::JobOutput(asio::io_context& loop, Terminal& terminal, TagStyle tags)
    : terminal_(terminal),
      tags_(std::move(tags)),
      progress_(terminal.has_live_line()),
      fold_timer_(loop),
      writable_(loop),
      flush_timer_(loop) {
  // asio owns what it waits for, so it gets a duplicate.
  const int fd = ::fcntl(terminal.writable_fd(), F_DUPFD_CLOEXEC, 0);
  if (fd >= 0) writable_.assign(fd);
}

void JobOutput::PrintMessage(const std::string& text) {
  ShowHeld();
  terminal_.Err(text);
  Flush();
}

void JobOutput::Print(const std::string& line) {
  ShowHeld();
  terminal_.Out(line);
  Flush();
}

LineAssembler::Sink JobOutput::SinkFor(const StreamKey& key, const Stream& stream) {
  return [this, rank = static_cast<int>(std::get<1>(key)), is_stderr = std::get<2>(key),
          &stream](std::string_view line) { Show(rank, is_stderr, stream.tag, line); };
}

void JobOutput::Show(int rank, bool is_stderr, const std::string& tag, std::string_view line) {
  const bool is_terminal = is_stderr ? terminal_.err_is_terminal() : terminal_.out_is_terminal();
  if (!is_terminal || !tags_.tag_template.empty()) return Put(is_stderr, tag, line);
  folder_.Add(Clock::now(), rank, is_stderr, tag, line, FolderSink());
  ArmFoldTimer();
}

void JobOutput::Put(bool is_stderr, std::string_view tag, std::string_view line) {
  tagged_.assign(tag).append(line);
  is_stderr ? terminal_.ErrLine(tagged_) : terminal_.Out(tagged_);
}

LineFolder::Sink JobOutput::FolderSink() {
  return [this](const LineFolder::Line& line) {
    const bool is_one = line.ranks.size() == 1;
    Put(line.is_stderr, is_one ? std::string(line.tag) : FoldedTag(line.ranks), line.text);
  };
}

void JobOutput::ShowHeld() { folder_.Finish(FolderSink()); }

void JobOutput::ArmFoldTimer() {
  const std::optional<Clock::time_point> due = folder_.FlushDue();
  if (!due || std::exchange(fold_armed_, true)) return;
  fold_timer_.expires_at(*due);
  fold_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    fold_armed_ = false;
    folder_.Flush(Clock::now(), FolderSink());
    Flush();
    ArmFoldTimer();
  });
}

void JobOutput::Log(const std::string& node, const pb::LogChunk& chunk,
                    std::function<void()> then) {
  if (terminal_.Pending() >= kEnoughPendingBytes) {
    waiting_.push_back([this, node, &chunk, then = std::move(then)] { Log(node, chunk, then); });
    return;
  }
  const StreamKey key(node, chunk.rank(), chunk.is_stderr());
  Stream& stream = streams_[key];
  stream.tag =
      LineTag(tags_, node, static_cast<int>(chunk.rank()), static_cast<int>(chunk.local_rank()));
  const LineAssembler::Sink sink = SinkFor(key, stream);
  if (chunk.skipped_bytes() > 0) {
    stream.lines.Finish(sink);
    ShowHeld();
    terminal_.Err(stream.tag + "... skipped " + std::to_string(chunk.skipped_bytes()) +
                  " bytes that the terminal was too slow for; they are in the log file");
  }
  stream.lines.Append(chunk.data(), Clock::now(), sink);
  Flush();
  if (stream.lines.FlushDue()) ArmFlushTimer(kPartialLineDelay);
  then();
}

void JobOutput::Progress(const pb::WorkerStatus& status) {
  const std::optional<StatusLine> line = StatusLine::Parse(status.line());
  if (!line || line->event != StatusLine::Event::kStep || status.rank() > leading_rank_) return;
  leading_rank_ = status.rank();
  const std::optional<std::string> text = progress_.Update(*line, Clock::now());
  if (!text) return;
  terminal_.has_live_line() ? terminal_.SetLive(*text) : terminal_.Err(*text);
  Flush();
}

void JobOutput::FinishStreams() {
  for (auto& [key, stream] : streams_) stream.lines.Finish(SinkFor(key, stream));
  ShowHeld();
  terminal_.SetLive("");
  if (const std::optional<std::string> text = progress_.Last()) terminal_.Err(*text);
  Flush();
}

void JobOutput::Flush() {
  const size_t before = std::max(terminal_.Pending(), pending_before_);
  terminal_.Flush();
  const size_t pending = terminal_.Pending();
  if (pending == 0 || pending < before) progress_at_ = Clock::now();
  pending_before_ = pending;
  if (pending == 0) return;
  lagged_at_ = Clock::now();
  ArmFlushTimer(kSlowReaderPoll);
  AwaitReader();
}

void JobOutput::AwaitReader() {
  if (!writable_.is_open() || std::exchange(awaiting_reader_, true)) return;
  writable_.async_wait(writable_.wait_read, [this](const asio::error_code& error) {
    if (!error) OnReader();
  });
}

void JobOutput::OnReader() {
  awaiting_reader_ = false;
  const size_t pending = terminal_.Pending();
  terminal_.Flush();
  // A terminal that has room for one byte refuses a newline, which needs two. To await it again at
  // once would spin; the timer comes.
  if (terminal_.Pending() != pending) Flush();
  GoOn();
}

void JobOutput::ArmFlushTimer(milliseconds delay) {
  if (std::exchange(flush_armed_, true)) return;
  flush_timer_.expires_after(delay);
  flush_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) OnFlushTimer();
  });
}

void JobOutput::OnFlushTimer() {
  flush_armed_ = false;
  bool partial = false;
  // While the reader lags, the rest of a line is more likely to be held up than not written yet.
  const bool lags = terminal_.Pending() > 0 || Clock::now() - lagged_at_ < kPartialLineDelay;
  for (auto& [key, stream] : streams_) {
    if (!lags) stream.lines.FlushPartial(Clock::now(), SinkFor(key, stream));
    partial = partial || stream.lines.FlushDue();
  }
  Flush();
  if (partial) ArmFlushTimer(kPartialLineDelay);
  GoOn();
}

void JobOutput::GoOn() {
  if (terminal_.Pending() >= kEnoughPendingBytes) return;
  for (const std::function<void()>& go_on : std::exchange(waiting_, {})) go_on();
}

bool JobOutput::SlowReaderMakesProgress() const {
  const std::optional<Clock::duration> still = ReaderStandsStillFor();
  return still && *still < kReaderPatience;
}

std::optional<Clock::duration> JobOutput::ReaderStandsStillFor() const {
  if (terminal_.Pending() == 0) return std::nullopt;
  return Clock::now() - progress_at_;
}

}  // namespace dslaunch
