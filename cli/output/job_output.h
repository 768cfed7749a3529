// What the user sees of a running job.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "cli/output/line_folder.h"
#include "cli/output/progress_view.h"
#include "cli/output/redrawn_lines.h"
#include "cli/output/screen_lines.h"
#include "cli/output/summary_view.h"
#include "cli/output/terminal.h"
#include "proto/agent.pb.h"
#include "proto/contract/line_assembler.h"
#include "proto/contract/line_tag.h"

namespace dslaunch {

// Never blocks: what a slow terminal does not take is held, up to a bound, and its sources wait. On
// the loop's thread.
//
// On a terminal a line that several ranks write at about the same time is shown once (LineFolder),
// lines of the only rank that is shown have no tag, and where lines can be redrawn, what a rank
// redraws (ScreenLines) and the progress are live lines below all others. Pipes and files get every
// line, with its tag and at once: their readers may count, compare, or search for a rank's tag;
// only data has none (TagStyle::plain_stdout). Of what a rank redraws they get little
// (RedrawnLines). A template for the tags is obeyed everywhere: each
// line is to look as it says.
class JobOutput {
 public:
  // References outlive it.
  JobOutput(asio::io_context& loop, Terminal& terminal, TagStyle tags = {});

  // How many ranks' output comes, at most, once that is known; until then nothing is folded.
  void SetShownRanks(size_t ranks) {
    shown_ranks_ = ranks;
    folder_.SetRanks(ranks);
  }

  // Lines of dslaunch's own, on stderr. `text` may have several.
  void PrintMessage(const std::string& text);

  // A line for programs, on stdout.
  void Print(const std::string& line);

  // A piece of a rank's output, valid until `then` is called. That is once it was taken: while much
  // is pending already, not yet, which is how a slow terminal slows its source.
  void Log(const std::string& node, const pb::LogChunk& chunk, std::function<void()> then);

  // Rank 0 reads what the user types: what it asks stands below all other live lines.
  void SetReadsInput() { reads_input_ = true; }
  // The user has pressed Enter, which the terminal has shown.
  void OnEnter();

  // What the job does until its first step, such as "4 ranks run": a live line with the time since
  // this call, shown while nothing else moves. Replaces what was said before.
  void SetPhase(const std::string& phase);

  // A rank's step, for the progress line; it follows the lowest rank that reports.
  void Progress(const pb::WorkerStatus& status);

  // The streams have ended: shows unfinished lines and the last step, and takes the live line away.
  void FinishStreams();

  // Whether the last lines of the rank that failed were shown to their end, beside what
  // PrintMessage shows.
  bool HasShown(const EndCause& cause) const;

  // Waits, on the caller's thread, until the terminal took the last words, at most `limit`.
  void Drain(milliseconds limit = kDrainTimeout) { terminal_.Drain(Deadline::After(limit)); }

  // For how long the terminal has taken nothing of what is pending for it; nullopt: nothing is.
  std::optional<Clock::duration> ReaderStandsStillFor() const;
  // True while the terminal has taken something within the last minute: then it is worth waiting
  // for.
  bool SlowReaderMakesProgress() const;

 private:
  // After a restart a rank may be on another node.
  using StreamKey = std::tuple<std::string, uint32_t, bool>;  // node, rank, is_stderr

  struct Stream {
    std::string tag;
    RedrawnLines lines;
    ScreenLines screen;  // in its place where lines can be redrawn
    uint64_t attempt = 0;
    size_t last_line = 0;  // LineHash of the last one that was shown, blank ones aside

    void Finish(const LineAssembler::Sink& sink) {
      lines.Finish(sink);
      screen.Finish(sink);
    }
  };

  bool IsTerminal(bool is_stderr) const {
    return is_stderr ? terminal_.err_is_terminal() : terminal_.out_is_terminal();
  }
  bool HasScreen(bool is_stderr) const {
    return terminal_.has_live_line() && IsTerminal(is_stderr);
  }
  bool HasTag(bool is_stderr, std::string_view line) const;
  LineAssembler::Sink SinkFor(const StreamKey& key, Stream& stream);
  void Show(int rank, bool is_stderr, const std::string& tag, std::string_view line);
  void Put(bool is_stderr, std::string_view tag, std::string_view line);
  LineFolder::Sink FolderSink();
  void ShowHeld();
  void RefreshLive();
  void ArmLiveTimer();
  std::string PhaseLine(Clock::time_point now) const;
  void ArmFoldTimer();
  void ArmRedrawTimer(std::optional<Clock::time_point> due);
  void OnRedrawTimer();
  void Flush();
  void AwaitReader();
  void OnReader();
  void ArmFlushTimer();
  void OnFlushTimer();
  void GoOn();

  Terminal& terminal_;
  const TagStyle tags_;
  ProgressView progress_;
  bool reads_input_ = false;
  size_t shown_ranks_ = 0;  // 0: not known yet
  std::string phase_;       // empty: none, or it is over
  Clock::time_point phase_since_;
  Clock::time_point moved_at_;  // when a rank wrote something last
  asio::steady_timer live_timer_;
  bool live_armed_ = false;
  Clock::time_point live_at_;  // when the live lines were made last
  bool finished_ = false;
  LineFolder folder_;
  asio::steady_timer fold_timer_;
  bool fold_armed_ = false;
  asio::steady_timer redraw_timer_;
  bool redraw_armed_ = false;
  std::string tagged_;                       // the line that is put, kept for its memory
  asio::posix::stream_descriptor writable_;  // the terminal's writable_fd
  bool awaiting_reader_ = false;
  asio::steady_timer flush_timer_;
  bool flush_armed_ = false;
  size_t pending_before_ = 0;
  Clock::time_point progress_at_ = Clock::now();
  uint32_t leading_rank_ = UINT32_MAX;
  std::map<StreamKey, Stream> streams_;
  std::vector<std::function<void()>> waiting_;  // output that the terminal holds up
};

}  // namespace dslaunch
