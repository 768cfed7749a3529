// Prints the output of a running job on the terminal, or to pipes and files.
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

// Prints messages, the output of ranks and the progress of a job. Never blocks: output that a slow
// terminal does not accept is buffered up to a limit, then the sources of the output wait. All
// methods run on the loop's thread.
//
// On a terminal, a line that several ranks write at about the same time is printed once
// (LineFolder). Lines have no tag if only one rank is shown. If lines can be redrawn, the lines
// that ranks redraw (ScreenLines) and the progress are live lines below all others.
//
// Pipes and files get every line at once and with its tag, because their readers may count or
// compare lines, or search for a rank's tag; only data has no tag (TagStyle::plain_stdout). They
// get only some states of redrawn lines (RedrawnLines). A template for tags applies to all outputs.
class JobOutput {
 public:
  // Prepares to print on `terminal`. `loop` and `terminal` must outlive this object.
  JobOutput(asio::io_context& loop, Terminal& terminal, TagStyle tags = {});

  // Sets the maximum number of ranks whose output is printed. Lines are not folded before this
  // call.
  void SetShownRanks(size_t ranks) {
    shown_ranks_ = ranks;
    folder_.SetRanks(ranks);
  }

  // Prints a message of dslaunch, of one or more lines, on stderr.
  void PrintMessage(const std::string& text);

  // Prints a line on stdout for programs that read the output.
  void Print(const std::string& line);

  // Prints a piece of a rank's output, which must stay valid until `then` is called. Calls `then`
  // once the output is accepted. The call is delayed while much output is pending, so that a slow
  // terminal slows the source of the output.
  void Log(const std::string& node, const pb::LogChunk& chunk, std::function<void()> then);

  // Records that rank 0 reads the user's input, so that its prompt is shown below all other live
  // lines.
  void SetReadsInput() { reads_input_ = true; }
  // Records that the user has pressed Enter and the terminal has echoed it.
  void OnEnter();

  // Sets the activity before the job's first step, such as "4 ranks run", and replaces the previous
  // phase. While ranks write nothing, a live line shows the phase and the time since this call.
  void SetPhase(const std::string& phase);

  // Updates the progress line, which shows the lowest rank that reports progress.
  void Progress(const pb::WorkerStatus& status);

  // Prints unfinished lines and the last step, and removes the live lines. Call it when the streams
  // have ended.
  void FinishStreams();

  // Returns whether the last lines of the failed rank were shown to their end, not counting lines
  // that PrintMessage printed.
  bool HasShown(const EndCause& cause) const;

  // Blocks the caller until the terminal has accepted all output, for at most `limit`.
  void Drain(milliseconds limit = kDrainTimeout) { terminal_.Drain(Deadline::After(limit)); }

  // Returns the time for which the terminal has accepted none of its pending output; nullopt if no
  // output is pending.
  std::optional<Clock::duration> ReaderStalledFor() const;
  // Returns whether the terminal accepted output within the last minute, so that waiting for it can
  // succeed.
  bool SlowReaderMakesProgress() const;

 private:
  // Identifies a stream of output: node, rank, and whether the stream is stderr. Includes the node,
  // because after a restart a rank may run on a different node.
  using StreamKey = std::tuple<std::string, uint32_t, bool>;

  struct Stream {
    std::string tag;
    RedrawnLines lines;
    ScreenLines screen;  // lines of the stream, instead of `lines` if the terminal can redraw lines
    uint64_t attempt = 0;
    size_t last_line = 0;  // hash (LineHash) of the last shown line that was not blank

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
  void ArmFoldTimer();
  void ArmRedrawTimer(std::optional<Clock::time_point> due);
  void OnRedrawTimer();
  void Flush();
  void AwaitReader();
  void ResumeSources();

  Terminal& terminal_;
  const TagStyle tags_;
  ProgressView progress_;
  bool reads_input_ = false;
  size_t shown_ranks_ = 0;  // number of ranks whose output is shown; 0 until known
  std::string phase_;       // current phase; empty before the first phase and after the last
  Clock::time_point phase_since_;
  Clock::time_point moved_at_;  // time of the last output of any rank
  asio::steady_timer live_timer_;
  bool live_armed_ = false;
  Clock::time_point live_at_;  // time of the last update of the live lines
  bool finished_ = false;
  LineFolder folder_;
  asio::steady_timer fold_timer_;
  bool fold_armed_ = false;
  asio::steady_timer redraw_timer_;
  bool redraw_armed_ = false;
  std::string tagged_;  // buffer of the line being printed, reused to avoid allocations
  asio::posix::stream_descriptor writable_;  // duplicate of the terminal's writable_fd
  bool awaiting_reader_ = false;
  asio::steady_timer flush_timer_;
  bool flush_armed_ = false;
  size_t pending_before_ = 0;
  Clock::time_point progress_at_ = Clock::now();
  uint32_t leading_rank_ = UINT32_MAX;
  std::map<StreamKey, Stream> streams_;
  std::vector<std::function<void()>> waiting_;  // callbacks of output that waits for the terminal
};

}  // namespace dslaunch
