// Changes a view by keys. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/top/curses_terminal.h"
#include "cli/top/job_screen.h"

namespace dslaunch {

// The task of the view's owner after a key.
enum class TopAction {
  kNone,
  kLeave,
  kReadStacks,  // show the stacks of the chosen row's ranks
  kFollowLog,   // show the output of the chosen row's first rank
  kCloseText,   // the text of kText is not shown any more
  kStopJob,     // the user has confirmed it
};

// Changes `view` by a key. `table`: the rows that were drawn last. `page`: rows of the screen.
TopAction OnKey(TopView& view, TopKey key, const std::vector<TopRow>& table, size_t page);

// Shows `lines` below `title` in place of the table, from their beginning.
void ShowText(TopView& view, std::string title, std::vector<std::string> lines);

// Adds a line to a shown text, of which at most kMostTextLines are kept, and scrolls to the end if
// the end was on the screen.
inline constexpr size_t kMostTextLines = 2000;
void AppendText(TopView& view, std::string line, size_t page);

}  // namespace dslaunch
