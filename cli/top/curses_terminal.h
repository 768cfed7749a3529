// The user's terminal as a screen, by ncurses. It decides nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/top/job_screen.h"

namespace dslaunch {

// Meanings of keys.
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

// One at a time. Not thread-safe.
class CursesTerminal {
 public:
  // Takes over the terminal at stdin and stdout. kUsage, with a hint, if they are not a terminal,
  // or if the terminal's type (TERM) is unknown here or cannot place the cursor. Without colours if
  // the terminal has none or NO_COLOR is set.
  static Result<std::unique_ptr<CursesTerminal>> Open();
  // Gives the terminal back as it was.
  ~CursesTerminal();
  CursesTerminal(const CursesTerminal&) = delete;

  size_t rows() const;
  size_t columns() const;
  // Reads the terminal's size again, after SIGWINCH.
  void Resize();
  void Show(const TopScreen& screen);
  // Returns the next key that was pressed; nullopt if there is none now.
  std::optional<TopKey> ReadKey();

 private:
  CursesTerminal(bool has_colors, bool is_utf8) : has_colors_(has_colors), is_utf8_(is_utf8) {}

  const bool has_colors_;
  const bool is_utf8_;
};

}  // namespace dslaunch
