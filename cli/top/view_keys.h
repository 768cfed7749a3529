// Changes a view by keys. All functions are pure.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/top/curses_terminal.h"
#include "cli/top/job_screen.h"

namespace dslaunch {

// The action that the owner of the view must perform after a key.
enum class TopAction {
  kNone,
  kLeave,
  kReadStacks,  // show the stacks of the chosen row's ranks
  kFollowLog,   // show the output of the chosen row's first rank
  kCloseText,   // the text of mode kText is no longer shown
  kStopJob,     // stop the job, which the user has confirmed
};

// Changes `view` as `key` requests, and returns what the owner must do beyond that; kNone if
// nothing. `table` has the rows that were drawn last, to which view.cursor refers, and may be
// empty. `page` is the number of rows of the screen. While view.asks_to_stop is set, kYes confirms
// the stop, and any other key only cancels it.
TopAction OnKey(TopView& view, TopKey key, const std::vector<TopRow>& table, size_t page);

// Makes `view` show `lines` below `title` instead of the table, beginning at the first line.
void ShowText(TopView& view, std::string title, std::vector<std::string> lines);

// Largest number of lines that the shown text keeps.
inline constexpr size_t kMostTextLines = 2000;

// Adds a line to the shown text, and removes the first line if the text exceeds kMostTextLines. If
// the end of the text was on the screen, scrolls to the new end. `page` is the number of rows of
// the screen.
void AppendText(TopView& view, std::string line, size_t page);

}  // namespace dslaunch
