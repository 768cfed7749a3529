// Writes to the user's stdout and stderr: ordinary lines, and live lines at the bottom of a
// terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Longest wait for a terminal to accept the last output.
inline constexpr milliseconds kDrainTimeout(10'000);

// Opens /dev/null for each of the descriptors 0 to 2 that is closed, so that no other file gets its
// number. Also ignores SIGPIPE. Call it first in main.
void OpenStandardFds();

// The stdout and stderr of this process. Writes without blocking, except in Drain. Output that a
// slow reader does not accept is buffered up to kMaxPendingBytes. If the limit is exceeded, whole
// lines are dropped, and a message reports this once the reader continues. A stream is written no
// more if its reader has closed it or writing fails (EPIPE, EBADF, full disk).
//
// Lines for a terminal are passed through SanitizeForTerminal; colours of programs are kept if the
// terminal supports them (SanitizeKeepingColors). Lines for pipes and files are passed only through
// WithoutEscapes. Escapes must not pass, because `| less` ends at a terminal too; all other bytes
// must pass, because other readers may need them. Messages of dslaunch have no colours. Not
// thread-safe.
class Terminal {
 public:
  static constexpr size_t kMaxPendingBytes = 4u << 20;

  // Borrows the descriptors. `term` and `no_color` are the values of TERM and NO_COLOR; nullptr if
  // unset.
  Terminal(int out_fd, int err_fd, const char* term, const char* no_color = nullptr);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool out_is_terminal() const { return out_.is_terminal; }
  bool err_is_terminal() const { return err_.is_terminal; }

  // Returns whether live lines are shown, because stderr is a terminal that can redraw a line.
  bool has_live_line() const { return has_live_line_; }

  // Returns the current width of the terminal at stderr, in characters; 0 if unknown.
  int columns() const;

  // Returns the current number of rows of the terminal at stderr; 0 if unknown.
  int rows() const;

  // Adds one or more lines and appends a newline. The next Flush writes them.
  void Out(std::string_view line) { AddLine(out_, line); }
  // Adds a line that a program wrote to its stderr.
  void ErrLine(std::string_view line) { AddLine(same_ ? out_ : err_, line); }
  // Adds a message of dslaunch to stderr after passing it through SanitizeMessage.
  void Err(std::string_view message);

  // Replaces the live lines, topmost first; an empty list removes them. Each line is cut to the
  // terminal's width. If the terminal has too few rows, only the first lines and the last line are
  // shown. Call it also if the width may have changed. Has no effect if has_live_line() is false.
  // The next Flush draws the lines.
  void SetLive(const std::vector<std::string>& lines);

  // Converts the live lines into ordinary lines, because the cursor has moved below them.
  void KeepLive();

  // Writes the bytes that the readers accept now. Call it after each batch of lines, and again
  // while Pending() is not 0.
  void Flush();

  // Returns kIo if writing to stdout failed for a reason other than a closed reader, as with `>
  // /dev/full`. Used by commands that would otherwise report success.
  Result<void> OutResult() const;

  // Returns the number of bytes that the readers have not accepted yet.
  size_t Pending() const { return out_.Pending() + err_.Pending(); }

  // Returns an epoll descriptor that is readable while a reader can accept pending output; -1 if
  // there is none. The caller can wait for it together with other events before the next Flush,
  // without changing the flags of the user's descriptors. The descriptor is borrowed.
  int writable_fd() const { return writable_.get(); }

  // Flushes until all output is accepted or the deadline has passed, then discards the remaining
  // output.
  void Drain(Deadline deadline);

 private:
  struct Stream {
    int fd = -1;
    UniqueFd own;  // same file, opened again as non-blocking for this process only, if possible
    bool is_terminal = false;
    bool dead = false;
    int error_number = 0;  // errno of the failed write; 0 if no write failed
    bool watched = false;  // whether writable_ watches this stream
    std::string text;
    size_t taken = 0;  // number of bytes of `text` that were written
    size_t dropped_lines = 0;

    size_t Pending() const { return text.size() - taken; }
    int WriteFd() const { return own ? own.get() : fd; }
  };

  static void Open(Stream& stream, int fd);
  void Write(Stream& stream);
  void Watch(Stream& stream);
  void AddLine(Stream& stream, std::string_view line);
  void DrawLive(Stream& stream);
  void EraseLive();

  UniqueFd writable_;  // watches the streams that have pending bytes
  Stream out_;
  Stream err_;
  // True if both streams lead to the same terminal. All output then uses out_ to keep its order.
  bool same_ = false;
  bool has_live_line_ = false;
  bool has_colors_ = false;
  std::vector<std::string> live_;
  std::vector<int> drawn_widths_;  // widths of the live lines on the screen
  int drawn_columns_ = 0;          // width of the screen when the live lines were drawn
};

}  // namespace dslaunch
