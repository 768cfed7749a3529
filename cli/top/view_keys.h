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

// Changes `view` by a key. `table` has the rows that were drawn last; `page` is the number of rows
// on the screen.
TopAction OnKey(TopView& view, TopKey key, const std::vector<TopRow>& table, size_t page);

// Shows `lines` below `title` instead of the table, from the first line on.
void ShowText(TopView& view, std::string title, std::vector<std::string> lines);

// Largest number of lines that the shown text keeps.
inline constexpr size_t kMostTextLines = 2000;
// Adds a line to the shown text, of which at most kMostTextLines lines are kept. Scrolls to the
// end if the end was on the screen.
void AppendText(TopView& view, std::string line, size_t page);

}  // namespace dslaunch
