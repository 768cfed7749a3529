#include "cli/output/summary_view.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "base/count.h"
#include "base/text/rank_list.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/text/size_text.h"
#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

// Largest number of lines that are repeated although they are already on the terminal.
constexpr size_t kMaxShownLines = 3;
constexpr size_t kMaxGroups = 4;
constexpr size_t kMaxVictimsQuoted = 8;

// Returns a duration such as "12.3 s" or "5 min 02 s".
std::string Duration(double seconds) {
  if (seconds >= 60) return DurationText(static_cast<int64_t>(seconds) * 1000);
  char text[64];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

// Returns "rank 5" or "ranks 0-2, 5". Precondition: `ranks` is ascending and not empty.
std::string RankList(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + RankRanges(ranks, ", ");
}

// Returns how a worker ended, as the predicate of "rank 1" or, with `many`, of "ranks 1-3".
std::string EndWords(const RankSummary& end, bool many) {
  const std::string was = many ? "were " : "was ";
  if (!end.reported) return "did not report an end";
  if (end.signal != 0) {
    return was + (end.stopping ? "stopped (" : "killed by ") + SignalName(end.signal) +
           (end.stopping ? ")" : "");
  }
  if (end.exit_code == 0) return "succeeded";
  return "exited with code " + std::to_string(end.exit_code) +
         (end.stopping ? " when stopped" : "");
}

// Returns `message`, sanitized, with all lines after the first line indented.
std::string MessageText(std::string_view message) {
  std::string text;
  for (const std::string_view line : SplitLines(message)) {
    text += (text.empty() ? "" : "\n  ") + SanitizeForTerminal(line);
  }
  return text;
}

// Returns the last lines of the failed rank. Returns an empty string if the lines are already on
// the terminal and the error is known, because the user can find the lines by the error.
std::string LastLinesText(const EndCause& cause) {
  if (cause.was_shown && !cause.evidence.empty()) return "";
  std::string text;
  for (const std::string_view line :
       LastLines(cause.last_lines, cause.was_shown ? kMaxShownLines : kMaxLastLines))
    text += "    " + SanitizeForTerminal(line) + "\n";
  return text.empty() ? "" : "  its last lines:\n" + text;
}

// Returns whether one of the last lines that are shown contains `what`.
bool HasLine(const std::string& last_lines, std::string_view what) {
  return std::ranges::any_of(LastLines(last_lines), [&](std::string_view line) {
    return line.find(what) != std::string_view::npos;
  });
}

// Describes the rank that the victims waited for, if only victims are known.
std::string NeededRanks(const JobSummary& summary) {
  if (!summary.cause.timed_out)
    return "  its connection to another rank ended, and no rank left an error of its own\n";
  std::vector<int> running;
  for (const RankSummary& end : summary.workers) {
    if (end.stopping && end.rank != summary.cause.rank) running.push_back(end.rank);
  }
  std::ranges::sort(running);
  return "  it timed out waiting for another rank, and no rank left an error of its own; " +
         (running.empty() ? "no rank" : RankList(running)) +
         (running.size() > 1 ? " were" : " was") + " still running\n";
}

// Lists the error of each victim if only victims are known, because together the errors may show
// which rank caused them.
std::string VictimsErrors(const JobSummary& summary) {
  std::vector<const RankSummary*> ends;
  for (const RankSummary& end : summary.workers) {
    if (!end.evidence.empty() && end.rank != summary.cause.rank) ends.push_back(&end);
  }
  std::ranges::sort(ends, {}, &RankSummary::rank);
  std::string text = NeededRanks(summary);
  for (size_t i = 0; i < std::min(ends.size(), kMaxVictimsQuoted); ++i)
    text +=
        "    rank " + std::to_string(ends[i]->rank) + ": " + MessageText(ends[i]->evidence) + "\n";
  if (ends.size() > kMaxVictimsQuoted)
    text += "    and " + Count(ends.size() - kMaxVictimsQuoted, "other rank") + "\n";
  return text;
}

std::string VictimsLine(const JobSummary& summary) {
  if (summary.cause.victim) return VictimsErrors(summary);
  std::vector<int> victims;
  for (const RankSummary& end : summary.workers) {
    if (end.victim) victims.push_back(end.rank);
  }
  std::ranges::sort(victims);
  return victims.empty() ? "" : "  " + RankList(victims) + " failed because of it\n";
}

std::string LeftLine(const LeftEnd& left) {
  std::string about = left.command;
  if (!left.state.empty()) about += (about.empty() ? "state " : ", state ") + left.state;
  if (!left.waits_in.empty())
    about += (about.empty() ? "waits in " : ", waits in ") + left.waits_in;
  return "  " + left.node + ": could not end process " + std::to_string(left.pid) +
         (about.empty() ? "" : " (" + SanitizeForTerminal(about) + ")") +
         "; look at it there with ps\n";
}

// Returns the lines that follow the summary of a success or a failure.
std::string Remarks(const JobSummary& summary) {
  std::string text;
  for (const LeftEnd& left : summary.left) text += LeftLine(left);
  for (const std::string& remark : summary.remarks) text += "  " + MessageText(remark) + "\n";
  return text;
}

// Describes in one line the ranks that the lines above do not mention, grouped by how they ended.
std::string OthersLine(const JobSummary& summary) {
  std::vector<const RankSummary*> ends;
  for (const RankSummary& end : summary.workers) {
    if (end.rank == summary.cause.rank || (end.victim && !summary.cause.victim)) continue;
    ends.push_back(&end);
  }
  std::sort(ends.begin(), ends.end(),
            [](const auto* a, const auto* b) { return a->rank < b->rank; });
  // Groups of equal ends, sorted by the lowest rank.
  std::vector<std::pair<const RankSummary*, std::vector<int>>> groups;
  std::map<std::string, size_t> group_of;
  for (const RankSummary* end : ends) {
    const auto [found, is_new] = group_of.emplace(EndWords(*end, false), groups.size());
    if (is_new) groups.push_back({end, {}});
    groups[found->second].second.push_back(end->rank);
  }
  std::string line;
  for (size_t i = 0; i < std::min(groups.size(), kMaxGroups); ++i) {
    const auto& [end, ranks] = groups[i];
    line += (i == 0 ? "" : "; ") + RankList(ranks) + " " + EndWords(*end, ranks.size() > 1);
  }
  if (groups.size() > kMaxGroups) line += "; others ended in other ways";
  return line.empty() ? "" : "  " + line + "\n";
}

// Returns the reason in brackets after "stopped on request" for a job that was interrupted: the
// signal, or the message of another cause. A message that contains the signal's name, such as
// "interrupted by SIGINT after 2 s", is replaced by the name.
std::string StopReason(const EndCause& cause) {
  constexpr std::string_view kStopped = "stopped ";
  const std::string signal = SignalName(cause.signal);
  if (cause.message.empty() || cause.message.find(signal) != std::string::npos) return signal;
  return MessageText(cause.message.starts_with(kStopped) ? cause.message.substr(kStopped.size())
                                                         : cause.message);
}

}  // namespace

std::string PathOnNode(const JobSummary& summary, const std::string& node,
                       const std::string& path) {
  return summary.is_local ? path : node + ":" + path;
}

std::string FirstCauseText(const JobSummary& summary) {
  const EndCause& cause = summary.cause;
  const std::string after = " after " + Duration(summary.duration_s);
  const std::string who = "rank " + std::to_string(cause.rank) + " (" + cause.node +
                          ", local rank " + std::to_string(cause.local_rank) + ")";
  if (cause.kind == EndCause::Kind::kWorkerExit) {
    return who + " exited with code " + std::to_string(cause.exit_code) +
           (cause.out_of_memory ? ", out of memory," : "") + after;
  }
  if (cause.kind == EndCause::Kind::kWorkerSignal) {
    return who + " was killed by " + SignalName(cause.signal) +
           (cause.out_of_memory ? ", out of memory," : "") +
           (cause.core_dumped ? ", core dumped," : "") + after;
  }
  if (!cause.message.empty()) return MessageText(cause.message);
  if (cause.kind == EndCause::Kind::kInterrupted) {
    return "interrupted" + (cause.signal == 0 ? "" : " by " + SignalName(cause.signal)) + after;
  }
  return "the job failed" + (cause.node.empty() ? "" : " on " + cause.node) + after;
}

std::vector<std::string_view> LastLines(std::string_view text, size_t most) {
  std::vector<std::string_view> lines = SplitLines(text);
  if (lines.size() > most)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

namespace {

// Returns a line about whether a restart can help. Omits the line of output that shows this if that
// line is shown already.
std::string RestartLine(const EndCause& cause, bool lines_are_shown) {
  if (cause.restart == EndCause::Restart::kUnknown) return "";
  const bool is_known = cause.restart_line == cause.evidence ||
                        (lines_are_shown && HasLine(cause.last_lines, cause.restart_line));
  return std::string("  a restart ") +
         (cause.restart == EndCause::Restart::kCanHelp ? "can" : "cannot") +
         " help: " + cause.restart_reason +
         (is_known || cause.restart_line.empty() ? ""
                                                 : " (" + MessageText(cause.restart_line) + ")") +
         "\n";
}

}  // namespace

std::string SummaryText(const JobSummary& summary) {
  const std::string restarts =
      summary.restarts == 0 ? "" : " with " + Count(summary.restarts, "restart");
  if (summary.cause.kind == EndCause::Kind::kNone && summary.exit_code == 0) {
    const auto lost = std::ranges::count_if(
        summary.workers, [](const RankSummary& end) { return end.reported && end.signal != 0; });
    return "dslaunch: " + (lost == 0 ? "" : std::to_string(summary.world_size - lost) + " of ") +
           Count(static_cast<size_t>(summary.world_size), "rank") + " on " +
           Count(static_cast<size_t>(summary.num_nodes), "node") + " succeeded in " +
           Duration(summary.duration_s) + restarts +
           (summary.logs.empty() ? "" : "; logs: " + summary.logs) + "\n" + Remarks(summary);
  }
  if (summary.saved_on_request) {
    const bool by_signal = summary.cause.kind == EndCause::Kind::kInterrupted;
    return "dslaunch: stopped on request" +
           (by_signal ? " (" + StopReason(summary.cause) + ")" : "") + " after " +
           Duration(summary.duration_s) + restarts +
           ": every rank has saved its state; start the job again to continue" +
           (summary.logs.empty() ? "" : "; logs: " + summary.logs) + "\n" + Remarks(summary) +
           "  exit code " + std::to_string(summary.exit_code) + "\n";
  }
  const EndCause& cause = summary.cause;
  std::string text = "dslaunch: " + FirstCauseText(summary) + restarts + "\n";
  const std::string last_lines = LastLinesText(cause);
  if (!cause.evidence.empty() && (last_lines.empty() || !HasLine(cause.last_lines, cause.evidence)))
    text += "  " + MessageText(cause.evidence) + "\n";
  text += last_lines;
  text += RestartLine(cause, !last_lines.empty());
  if (!summary.hint.empty()) text += "  " + summary.hint + "\n";
  if (!cause.log_path.empty()) {
    text += "  its log: " + PathOnNode(summary, cause.node, cause.log_path) + "\n";
  } else if (!summary.logs.empty()) {
    text += "  logs: " + summary.logs + "\n";
  }
  return text + VictimsLine(summary) + OthersLine(summary) + Remarks(summary) + "  exit code " +
         std::to_string(summary.exit_code) + "\n";
}

}  // namespace dslaunch
