#include "cli/output/job_output.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>

#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "proto/contract/status_line.h"

namespace dslaunch {
namespace {

constexpr size_t kEnoughPendingBytes = 256 << 10;
// Interval of retries while a slow reader is awaited. The descriptor of the reader is polled too.
constexpr milliseconds kSlowReaderPoll(200);
constexpr std::chrono::seconds kReaderPatience(60);

constexpr milliseconds kLiveEvery(50);  // interval at which redrawn lines are refreshed
// Interval at which the terminal's width and the time shown are refreshed.
constexpr milliseconds kLookEvery(250);
// Time within which redrawn lines of several ranks are output together in pipes and files.
constexpr milliseconds kRedrawnTogether(500);
constexpr milliseconds kStillAfter(1500);  // time without a line after which the phase is shown

// The prefix of dslaunch's messages. An untagged line of a rank must not begin with this prefix.
constexpr std::string_view kMessagePrefix = "dslaunch";

std::string WholeDuration(Clock::duration duration) {
  return DurationText(1000 * std::chrono::duration_cast<std::chrono::seconds>(duration).count());
}

// Returns the hash of the part of a line that remains after redrawing, without trailing blanks; 0
// if nothing remains.
size_t LineHash(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t end = line.find_last_not_of(kBlanks);
  if (end == line.npos) return 0;
  line = line.substr(0, end + 1);
  const size_t carriage = line.rfind('\r');
  if (carriage != line.npos) line.remove_prefix(carriage + 1);
  return std::max<size_t>(std::hash<std::string_view>()(line), 1);
}

}  // namespace

JobOutput::JobOutput(asio::io_context& loop, Terminal& terminal, TagStyle tags)
    : terminal_(terminal),
      tags_(std::move(tags)),
      progress_(terminal.has_live_line()),
      live_timer_(loop),
      fold_timer_(loop),
      redraw_timer_(loop),
      writable_(loop),
      flush_timer_(loop) {
  // asio closes the descriptor that it waits for, so asio gets a duplicate of the terminal's
  // descriptor.
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

// Returns whether a line gets a tag. On a terminal that shows a single rank, only a line that looks
// like a message of dslaunch gets a tag.
bool JobOutput::HasTag(bool is_stderr, std::string_view line) const {
  if (tags_.plain_stdout && !is_stderr && !IsTerminal(is_stderr)) return false;
  if (shown_ranks_ != 1 || !tags_.tag_template.empty() || !IsTerminal(is_stderr)) return true;
  if (line.empty() || (line[0] > ' ' && line[0] < 0x7f && line[0] != kMessagePrefix[0]))
    return false;
  return SanitizeForTerminal(line).starts_with(kMessagePrefix);
}

LineAssembler::Sink JobOutput::SinkFor(const StreamKey& key, Stream& stream) {
  return [this, rank = static_cast<int>(std::get<1>(key)), is_stderr = std::get<2>(key),
          &stream](std::string_view line) {
    if (const size_t hash = LineHash(line); hash != 0) stream.last_line = hash;
    Show(rank, is_stderr, stream.tag, line);
  };
}

bool JobOutput::HasShown(const EndCause& cause) const {
  const bool is_stderr = cause.log_path.ends_with("stderr.log");
  if (cause.rank < 0 || (!is_stderr && IsTerminal(false) != IsTerminal(true))) return false;
  const auto stream =
      streams_.find(StreamKey(cause.node, static_cast<uint32_t>(cause.rank), is_stderr));
  if (stream == streams_.end()) return false;
  std::string_view lines = cause.last_lines;
  size_t hash = 0;
  while (hash == 0 && !lines.empty()) {
    const size_t newline = lines.rfind('\n');
    const size_t begin = newline == lines.npos ? 0 : newline + 1;
    hash = LineHash(lines.substr(begin));
    lines = lines.substr(0, newline == lines.npos ? 0 : newline);
  }
  return hash != 0 && hash == stream->second.last_line;
}

void JobOutput::Show(int rank, bool is_stderr, const std::string& tag, std::string_view line) {
  if (!HasTag(is_stderr, line)) return Put(is_stderr, "", line);
  if (!IsTerminal(is_stderr) || !tags_.tag_template.empty()) return Put(is_stderr, tag, line);
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

void JobOutput::ArmRedrawTimer(std::optional<Clock::time_point> due) {
  if (!due || finished_ || std::exchange(redraw_armed_, true)) return;
  redraw_timer_.expires_at(std::max(*due, Clock::now() + kRedrawnTogether));
  redraw_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) OnRedrawTimer();
  });
}

void JobOutput::OnRedrawTimer() {
  redraw_armed_ = false;
  const Clock::time_point now = Clock::now();
  std::optional<Clock::time_point> next;
  for (auto& [key, stream] : streams_) {
    stream.lines.Flush(now, SinkFor(key, stream));
    const std::optional<Clock::time_point> due = stream.lines.FlushDue();
    if (due) next = next ? std::min(*next, *due) : due;
  }
  Flush();
  ArmRedrawTimer(next);
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
  const bool is_new_attempt = std::exchange(stream.attempt, chunk.attempt()) != chunk.attempt();
  if (is_new_attempt || chunk.skipped_bytes() > 0) stream.Finish(sink);
  if (chunk.skipped_bytes() > 0) {
    ShowHeld();
    terminal_.Err(stream.tag + "... skipped " + std::to_string(chunk.skipped_bytes()) +
                  " bytes that the terminal was too slow for; they are in the log file");
  }
  moved_at_ = Clock::now();
  if (HasScreen(chunk.is_stderr())) {
    stream.screen.Append(chunk.data(), moved_at_, sink);
    if (moved_at_ - live_at_ >= kLiveEvery) RefreshLive();
    ArmLiveTimer();
  } else {
    stream.lines.Append(chunk.data(), moved_at_, sink);
    if (chunk.stands_still()) stream.lines.FlushPartial(moved_at_, sink);
    ArmRedrawTimer(stream.lines.FlushDue());
  }
  Flush();
  then();
}

void JobOutput::SetPhase(const std::string& phase) {
  phase_ = phase;
  phase_since_ = moved_at_ = Clock::now();
  ArmLiveTimer();
}

void JobOutput::OnEnter() {
  terminal_.KeepLive();
  for (auto& [key, stream] : streams_) {
    if (std::get<1>(key) == 0) stream.screen.Enter();
  }
}

void JobOutput::RefreshLive() {
  if (!terminal_.has_live_line() || finished_) return;
  const Clock::time_point now = live_at_ = Clock::now();
  std::vector<std::pair<uint32_t, std::string>> by_rank;
  for (const auto& [key, stream] : streams_) {
    for (const std::string& row : stream.screen.Live(now))
      by_rank.emplace_back(std::get<1>(key),
                           HasTag(std::get<2>(key), row) ? stream.tag + row : row);
  }
  std::ranges::stable_sort(by_rank, {}, &std::pair<uint32_t, std::string>::first);
  std::vector<std::string> lines;
  for (auto& [rank, line] : by_rank) lines.push_back(std::move(line));
  std::string last = progress_.Line(terminal_.columns());
  if (last.empty() && lines.empty() && !phase_.empty() && now - moved_at_ >= kStillAfter)
    last = phase_ + ", " + WholeDuration(now - phase_since_);
  const auto asks = reads_input_ && !by_rank.empty() && by_rank.front().first == 0
                        ? std::ranges::count(by_rank, 0u, &std::pair<uint32_t, std::string>::first)
                        : 0;
  if (!last.empty()) lines.push_back(std::move(last));
  std::rotate(lines.begin(), lines.begin() + asks, lines.end());
  terminal_.SetLive(lines);
}

// Schedules the next refresh unless one is scheduled, the output has finished, or the terminal
// cannot redraw lines. Refreshes are more frequent while ranks write output.
void JobOutput::ArmLiveTimer() {
  if (!terminal_.has_live_line() || finished_ || std::exchange(live_armed_, true)) return;
  const bool is_moving = Clock::now() - moved_at_ < 2 * kPartialLineDelay;
  live_timer_.expires_after(is_moving ? kLiveEvery : kLookEvery);
  live_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    live_armed_ = false;
    RefreshLive();
    Flush();
    ArmLiveTimer();
  });
}

void JobOutput::Progress(const pb::WorkerStatus& status) {
  const std::optional<StatusLine> line = StatusLine::Parse(status.line());
  if (!line || line->event != StatusLine::Event::kStep || status.rank() > leading_rank_) return;
  leading_rank_ = status.rank();
  phase_.clear();
  const std::optional<std::string> text = progress_.Update(*line, Clock::now());
  if (!text) return;
  terminal_.has_live_line() ? RefreshLive() : terminal_.Err(*text);
  Flush();
  ArmLiveTimer();
}

void JobOutput::FinishStreams() {
  for (auto& [key, stream] : streams_) {
    stream.Finish(SinkFor(key, stream));
  }
  ShowHeld();
  finished_ = true;
  live_timer_.cancel();
  redraw_timer_.cancel();
  terminal_.SetLive({});
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
  AwaitReader();
  if (std::exchange(flush_armed_, true)) return;
  flush_timer_.expires_after(kSlowReaderPoll);
  flush_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    flush_armed_ = false;
    Flush();
    ResumeSources();
  });
}

void JobOutput::AwaitReader() {
  if (!writable_.is_open() || std::exchange(awaiting_reader_, true)) return;
  writable_.async_wait(writable_.wait_read, [this](const asio::error_code& error) {
    if (error) return;
    awaiting_reader_ = false;
    const size_t before = terminal_.Pending();
    terminal_.Flush();
    // A terminal with room for a single byte refuses a newline, which needs two bytes. Waiting for
    // the descriptor again at once would spin, so the timer retries.
    if (terminal_.Pending() != before) Flush();
    ResumeSources();
  });
}

void JobOutput::ResumeSources() {
  if (terminal_.Pending() >= kEnoughPendingBytes) return;
  for (const std::function<void()>& go_on : std::exchange(waiting_, {})) go_on();
}

bool JobOutput::SlowReaderMakesProgress() const {
  const std::optional<Clock::duration> still = ReaderStalledFor();
  return still && *still < kReaderPatience;
}

std::optional<Clock::duration> JobOutput::ReaderStalledFor() const {
  if (terminal_.Pending() == 0) return std::nullopt;
  return Clock::now() - progress_at_;
}

}  // namespace dslaunch
