// Lays out what is known of a job on a screen of any size. Pure.
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
  size_t cursor = 0;              // index of the chosen row of the table
  std::set<size_t> open_nodes;    // nodes whose ranks are listed one by one
  bool all_nodes = false;         // lists nodes that are alike one by one
  bool asks_to_stop = false;      // waits for the answer to "stop the job?"
  std::string message;            // shown in the bottom line instead of the keys, if not empty
  std::string title;              // heading of the text in mode kText
  std::vector<std::string> text;  // its lines, sanitized
  size_t text_at = 0;             // first line on the screen
};

// Facts about the job that its record has.
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
  std::string text;  // sanitized UTF-8
  TopStyle style = TopStyle::kPlain;
};
using TopLine = std::vector<TopSpan>;

// A row of the table.
struct TopRow {
  std::string label;
  std::vector<uint32_t> ranks;  // ascending
  std::optional<size_t> node;   // nullopt: several nodes
  bool is_node = false;         // stands for a node, or several, and not for ranks of one
  bool stands_out = false;
};

// Returns the rows of the table: nodes, and below each its ranks, of which those that are alike
// share a row. With more than kMostListedNodes nodes, those in which nothing stands out share one.
inline constexpr size_t kMostListedNodes = 16;
std::vector<TopRow> TableRows(const JobModel& model, const TopView& view, Clock::time_point now);

struct TopScreen {
  std::vector<TopLine> lines;  // at most as many as the screen has; each fits into its width
  std::vector<TopRow> rows;    // all rows of the table, also those that are not visible
};

// `rows` and `columns`: size of the screen. From 40 columns and 8 rows on nothing important is
// missing; a smaller screen shows the beginning of it.
TopScreen Draw(const JobModel& model, const TopJob& job, const TopView& view, const TopTime& time,
               size_t rows, size_t columns);

// Returns all of it as plain text with a newline after each line: the whole table, however long.
std::string TopText(const JobModel& model, const TopJob& job, const TopTime& time, size_t columns);

}  // namespace dslaunch
