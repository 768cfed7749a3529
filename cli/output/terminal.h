// The user's stdout and stderr: lines, and live lines at the bottom of a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

inline constexpr milliseconds kDrainTimeout(10'000);  // for a terminal to take the last words

// Opens /dev/null for each of descriptors 0 to 2 that is closed, so that no other file takes its
// number, and ignores SIGPIPE. Call it first in main.
void OpenStandardFds();

// Writes without ever waiting, except in Drain: what a slow reader does not take is held back, up
// to kMaxPendingBytes, and then dropped by whole lines, which is said once the reader is back. A
// reader that went away (EPIPE, EBADF, full disk) makes that stream silent.
//
// All lines that go to a terminal are made SanitizeForTerminal here; colours of programs stay where
// the terminal shows them (SanitizeKeepingColors). Pipes and files get lines WithoutEscapes: a
// `| less` ends at a terminal too, but what reads other bytes may want them all. dslaunch's own
// messages have no colours. Not thread-safe.
class Terminal {
 public:
  static constexpr size_t kMaxPendingBytes = 4u << 20;

  // Borrows the descriptors. `term` and `no_color` are the values of TERM and NO_COLOR, nullptr if
  // unset.
  Terminal(int out_fd, int err_fd, const char* term, const char* no_color = nullptr);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool out_is_terminal() const { return out_.is_terminal; }
  bool err_is_terminal() const { return err_.is_terminal; }

  // Whether there are live lines: stderr is a terminal that can redraw a line.
  bool has_live_line() const { return has_live_line_; }

  // Of stderr's terminal, as it is now.
  int columns() const;
  int rows() const;

  // Adds a line (its newline is added here), or several. Shown at the next Flush.
  void Out(std::string_view line) { AddLine(out_, line); }
  // Adds a line of a program's stderr.
  void ErrLine(std::string_view line) { AddLine(same_ ? out_ : err_, line); }
  // Adds a message of dslaunch to stderr, as SanitizeMessage.
  void Err(std::string_view message);

  // Replaces the live lines, topmost first; none removes them. Each is cut to the terminal's width;
  // of more than fit, the last one and the first ones are shown. Also to be called when the width
  // may have changed. Nothing happens where has_live_line() is false. Shown at the next Flush.
  void SetLive(const std::vector<std::string>& lines);

  // The cursor has moved below the live lines: they stay where they are, and are lines like others.
  void LeaveLive();

  // Writes what the readers take now. Call it after each batch of lines, and again while Pending().
  void Flush();

  // Once stdout takes nothing more for a reason other than a reader that went away, as `>
  // /dev/full`: kIo, for whoever would report success.
  Result<void> OutResult() const;

  // Bytes that the readers have not taken yet.
  size_t Pending() const { return out_.Pending() + err_.Pending(); }

  // An epoll descriptor: it is readable while a reader can take some of what is pending for it. For
  // waiting until the next Flush beside other things, without touching the flags of the user's
  // descriptors. Borrowed; -1 if there is none.
  int writable_fd() const { return writable_.get(); }

  // Flushes until all is taken or the deadline has come, then gives up what is left.
  void Drain(Deadline deadline);

 private:
  struct Stream {
    int fd = -1;
    UniqueFd
        own;  // the same file opened once more, non-blocking for us alone; when that can be done
    bool is_terminal = false;
    bool dead = false;
    int error_number = 0;  // of the write that failed; 0: none did
    bool watched = false;  // by writable_
    std::string text;
    size_t taken = 0;  // bytes of `text` that the reader has
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

  UniqueFd writable_;  // watches the streams that have bytes pending
  Stream out_;
  Stream err_;
  bool same_ = false;  // both are one terminal: all goes through out_, in order
  bool has_live_line_ = false;
  bool has_colors_ = false;
  std::vector<std::string> live_;
  std::vector<int> drawn_widths_;  // of the live lines that are on the screen
  int drawn_columns_ = 0;          // of the screen, when they were drawn
};

}  // namespace dslaunch
