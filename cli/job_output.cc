#include "cli/job_output.h"

#include <fcntl.h>

#include "proto/contract/status_line.h"

namespace dslaunch {
namespace {

constexpr size_t kEnoughPendingBytes = 256 << 10;
// A slow reader is awaited; this is how often it is tried beside that.
constexpr milliseconds kSlowReaderPoll(200);
constexpr std::chrono::seconds kReaderPatience(60);

}  // namespace

JobOutput::JobOutput(asio::io_context& loop, Terminal& terminal)
    : terminal_(terminal),
      progress_(terminal.has_live_line()),
      writable_(loop),
      flush_timer_(loop) {
  // asio owns what it waits for, so it gets a duplicate.
  const int fd = ::fcntl(terminal.writable_fd(), F_DUPFD_CLOEXEC, 0);
  if (fd >= 0) writable_.assign(fd);
}

void JobOutput::Say(const std::string& text) {
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    terminal_.Err(std::string_view(text).substr(start, end - start));
    start = end + 1;
  }
  Flush();
}

void JobOutput::Print(const std::string& line) {
  terminal_.Out(line);
  Flush();
}

LineAssembler::Sink JobOutput::SinkFor(bool is_stderr, const Stream& stream) {
  return [this, is_stderr, &stream, tagged = std::string()](std::string_view line) mutable {
    tagged.assign(stream.tag).append(line);
    is_stderr ? terminal_.Err(tagged) : terminal_.Out(tagged);
  };
}

void JobOutput::Log(const std::string& node, const pb::LogChunk& chunk,
                    std::function<void()> then) {
  if (terminal_.Pending() >= kEnoughPendingBytes) {
    waiting_.push_back([this, node, &chunk, then = std::move(then)] { Log(node, chunk, then); });
    return;
  }
  const bool is_terminal =
      chunk.is_stderr() ? terminal_.err_is_terminal() : terminal_.out_is_terminal();
  const auto rank = static_cast<int>(chunk.rank());
  Stream& stream = streams_
                       .try_emplace(StreamKey(node, chunk.rank(), chunk.is_stderr()),
                                    Stream{LineTag(node, rank), LineAssembler(is_terminal)})
                       .first->second;
  const LineAssembler::Sink sink = SinkFor(chunk.is_stderr(), stream);
  if (chunk.skipped_bytes() > 0) {
    stream.lines.Finish(sink);
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
  for (auto& [key, stream] : streams_) stream.lines.Finish(SinkFor(std::get<bool>(key), stream));
  terminal_.SetLive("");
  if (const std::optional<std::string> text = progress_.Last()) terminal_.Err(*text);
  Flush();
}

void JobOutput::Flush() {
  terminal_.Flush();
  const size_t pending = terminal_.Pending();
  if (pending == 0 || pending != pending_before_) progress_at_ = Clock::now();
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
    if (!lags) stream.lines.FlushPartial(Clock::now(), SinkFor(std::get<bool>(key), stream));
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
  return terminal_.Pending() > 0 && Clock::now() - progress_at_ < kReaderPatience;
}

}  // namespace dslaunch
