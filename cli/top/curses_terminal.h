// Shows screens on the user's terminal and reads keys, by ncurses. All decisions are made
// elsewhere.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/top/job_screen.h"

namespace dslaunch {

// The commands that keys give to `dslaunch top`.
enum class TopKey {
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kOpen,
  kStacks,
  kLog,
  kSort,
  kStop,
  kHelp,
  kLeave,
  kBack,  // Esc, which may also be the beginning of an arrow key on a slow line
  kYes,
  kOther,
};

// A terminal that is used as a screen. Only one object may exist at a time. Not thread-safe.
class CursesTerminal {
 public:
  // Takes over the terminal at stdin and stdout. Returns kUsage, with a hint, if they are not a
  // terminal, or if the terminal's type (TERM) is unknown on this machine or cannot place the
  // cursor. Uses no colours if the terminal has none or NO_COLOR is set.
  static Result<std::unique_ptr<CursesTerminal>> Open();
  // Restores the previous state of the terminal.
  ~CursesTerminal();
  CursesTerminal(const CursesTerminal&) = delete;

  size_t rows() const;
  size_t columns() const;
  // Reads the terminal's size again. Call it after SIGWINCH.
  void Resize();

  // Draws `screen` in place of the screen that was shown before.
  void Show(const TopScreen& screen);
  // Returns the next key that was pressed; nullopt if no key is pending.
  std::optional<TopKey> ReadKey();

 private:
  CursesTerminal(bool has_colors, bool is_utf8) : has_colors_(has_colors), is_utf8_(is_utf8) {}

  const bool has_colors_;
  const bool is_utf8_;
};

}  // namespace dslaunch
