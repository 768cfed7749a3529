// Lays out the state of a job on a screen of any size. All functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/top/job_model.h"

namespace dslaunch {

enum class TopSort { kRank, kStep, kStepTime, kMemory, kCpu, kPower };

// The part of the state that the user has chosen to see.
struct TopView {
  enum class Mode { kTable, kHelp, kText };
  Mode mode = Mode::kTable;
  TopSort sort = TopSort::kRank;
  size_t cursor = 0;            // index of the chosen row in the table
  std::set<size_t> open_nodes;  // nodes whose ranks are listed individually
  bool all_nodes = false;       // whether nodes that are alike have separate rows
  bool asks_to_stop = false;    // whether the user is being asked "stop the job?"
  std::string message;          // text shown in the bottom line instead of the keys; empty for none
  std::string title;            // heading of the text in mode kText
  std::vector<std::string> text;  // sanitized lines of the text in mode kText
  size_t text_at = 0;             // index of the first line of `text` on the screen
};

// Facts about the job from its record.
struct TopJob {
  std::string job_id;
  int64_t started_unix_ms = 0;
};

struct TopTime {
  Clock::time_point now;
  int64_t unix_ms = 0;
};

enum class TopStyle { kPlain, kBold, kHeading, kChosen, kWarning };

struct TopSpan {
  std::string text;  // text in sanitized UTF-8
  TopStyle style = TopStyle::kPlain;
};
using TopLine = std::vector<TopSpan>;

// A row of the table, which shows a node, several nodes, or ranks of a node.
struct TopRow {
  std::string label;
  std::vector<uint32_t> ranks;  // ranks of the row, ascending
  std::optional<size_t> node;   // index of the node; nullopt if the row has several nodes
  // True if the row represents a node or several nodes; false if it represents ranks of a node.
  bool is_node = false;
  bool stands_out = false;
};

// Largest number of nodes that all have a row of their own.
inline constexpr size_t kMostListedNodes = 16;
// Returns the rows of the table: nodes, and below each node its ranks, of which ranks that are
// alike share a row. With more than kMostListedNodes nodes, nodes in which nothing stands out
// share a row.
std::vector<TopRow> TableRows(const JobModel& model, const TopView& view, Clock::time_point now);

struct TopScreen {
  // Lines of the screen, at most as many as the screen has; each line fits the width.
  std::vector<TopLine> lines;
  std::vector<TopRow> rows;  // all rows of the table, including rows that are not visible
};

// Draws the screen, whose size is `rows` and `columns`. With at least 40 columns and 8 rows all
// important parts are shown; a smaller screen shows only the beginning.
TopScreen Draw(const JobModel& model, const TopJob& job, const TopView& view, const TopTime& time,
               size_t rows, size_t columns);

// Returns all facts as plain text with a newline after each line, including the whole table.
std::string TopText(const JobModel& model, const TopJob& job, const TopTime& time, size_t columns);

}  // namespace dslaunch
