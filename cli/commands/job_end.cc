#include "cli/commands/job_end.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "base/text/text_table.h"
#include "cli/session/job_summary.h"
#include "cli/session/summary_json.h"
#include "proto/wire/job_result.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

constexpr size_t kHeadBytes = 100;  // number of bytes that contain the time and the event of a line

bool IsEvent(std::string_view line, const char* name) {
  return line.substr(0, kHeadBytes).find("\"event\":\"" + std::string(name) + "\"") !=
         std::string_view::npos;
}

// Returns the local time in the form "2026-11-23 15:20:01".
std::string TimeText(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[64];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local) > 0 ? text : "";
}

std::string NodeList(const JobRecord& record) {
  constexpr size_t kMostNames = 8;
  std::string list;
  for (size_t i = 0; i < std::min(record.nodes.size(), kMostNames); ++i)
    list += (i == 0 ? "" : ", ") + record.nodes[i].name;
  if (record.nodes.size() > kMostNames)
    list += " and " + std::to_string(record.nodes.size() - kMostNames) + " more";
  return list;
}

}  // namespace

JobTrace ReadJobTrace(std::string_view events, const JobRecord& record) {
  JobTrace trace;
  for (const std::string_view line : SplitLines(events)) {
    const bool is_end = IsEvent(line, "end");
    const bool is_start = IsEvent(line, "started");
    const bool is_restart = IsEvent(line, "restarting");
    if (!is_end && !is_start && !is_restart && !IsEvent(line, "node_connected")) continue;
    try {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (is_end) {
        trace.end = ReadSummaryJson(json, record.launcher == Launcher::kLocal);
      } else if (is_start) {
        trace.world_size = json.at("world_size").get<int>();
        trace.attempt = std::max(trace.attempt, json.value("attempt", uint64_t{0}));
      } else if (is_restart) {
        trace.ended_attempt = std::max(trace.ended_attempt, json.value("attempt", uint64_t{0}));
      } else {
        trace.job_dirs[json.at("node").get<std::string>()] = json.at("job_dir").get<std::string>();
      }
    } catch (const nlohmann::json::exception&) {
      continue;  // skips a line that was cut off by a full disk
    }
  }
  // The recorded end of a detached job lists no ranks, so their number is taken from the starts.
  if (trace.end && trace.end->world_size == 0) trace.end->world_size = trace.world_size;
  return trace;
}

JobSummary SummarizeResult(const JobRecord& record, const pb::JobResult& result, size_t node,
                           const JobTrace& trace) {
  const pb::Cause& cause = result.cause();
  JobSummary summary;
  summary.job_id = record.job_id;
  summary.is_local = record.launcher == Launcher::kLocal;
  summary.exit_code = result.exit_code();
  summary.saved_on_request = SavedOnRequest(result);
  const int64_t started =
      result.started_unix_ms() > 0 ? result.started_unix_ms() : record.started_unix_ms;
  summary.duration_s =
      static_cast<double>(std::max<int64_t>(result.ended_unix_ms() - started, 0)) / 1000;
  std::vector<uint32_t> members = IndexesOf(result.done().members(), record.nodes.size());
  if (members.empty()) {
    members.resize(record.nodes.size());
    std::iota(members.begin(), members.end(), 0u);
  }
  summary.num_nodes = static_cast<int>(members.size());
  summary.world_size = trace.world_size > 0 ? trace.world_size : summary.num_nodes;
  for (const pb::AttemptEvent& event : result.done().attempts()) {
    if (!event.has_started()) continue;
    summary.world_size = static_cast<int>(event.started().world_size());
    summary.attempts = event.started().attempt();
    summary.restarts = event.started().restart_count();
  }
  for (uint32_t i = 0; i < record.nodes.size(); ++i) {
    const std::string& name = record.nodes[i].name;
    const auto dir = trace.job_dirs.find(name);
    const bool is_member = std::ranges::count(members, i) > 0;
    summary.nodes.push_back(
        {name, "done", is_member, dir == trace.job_dirs.end() ? "" : dir->second});
    if (is_member && summary.logs.empty() && !summary.nodes.back().log_dir.empty())
      summary.logs = PathOnNode(summary, name, summary.nodes.back().log_dir);
  }
  EndCause& first = summary.cause;
  first =
      EndCauseOf(cause, cause.kind() == pb::Cause::NONE ? "" : record.NodeName(cause.node_index()));
  const auto dir = trace.job_dirs.find(first.node);
  const bool of_rank =
      cause.kind() == pb::Cause::WORKER_EXIT || cause.kind() == pb::Cause::WORKER_SIGNAL;
  if (of_rank && dir != trace.job_dirs.end() && cause.attempt() > 0) {
    first.log_path = dir->second + "/attempt_" + std::to_string(cause.attempt()) + "/rank_" +
                     std::to_string(cause.rank()) + "/stderr.log";
  }
  for (const uint32_t rank : result.done().victims()) {
    if (static_cast<int>(rank) == cause.rank()) continue;
    RankSummary& victim = summary.workers.emplace_back();
    victim.rank = static_cast<int>(rank);
    victim.reported = false;
    victim.victim = true;
  }
  for (const pb::LeftProcess& left : result.done().left()) {
    summary.left.push_back(
        {record.NodeName(node), left.pid(), left.command(), left.state(), left.waits_in()});
  }
  return summary;
}

std::vector<TimedEvent> MissingEvents(const pb::JobResult& result, const JobTrace& trace) {
  std::vector<TimedEvent> missing;
  for (const pb::AttemptEvent& event : result.done().attempts()) {
    TimedEvent timed = {.unix_ms = event.unix_ms(), .event = {}};
    if (event.has_started() && event.started().attempt() > trace.attempt) {
      *timed.event.mutable_started() = event.started();
    } else if (event.has_restarting() && event.restarting().attempt() > trace.ended_attempt) {
      *timed.event.mutable_restarting() = event.restarting();
    } else {
      continue;
    }
    missing.push_back(std::move(timed));
  }
  return missing;
}

std::string DescribeJob(const JobView& view, const std::optional<JobSummary>& end,
                        const std::string& folder, int64_t now_unix_ms) {
  const JobRecord& record = view.record;
  const bool ended = view.state == JobView::State::kEnded;
  std::string command;
  for (const std::string& word : record.argv) command += (command.empty() ? "" : " ") + word;
  std::vector<std::vector<std::string>> rows = {{"job", record.job_id},
                                                {"command", SanitizeForTerminal(command)},
                                                {"folder", SanitizeForTerminal(record.cwd)},
                                                {"state", StateText(view)}};
  if (!ended && !view.detail.empty()) rows.push_back({"", SanitizeForTerminal(view.detail)});
  if (view.step >= 0) rows.push_back({"step", StepText(view)});
  if (const std::string copy = CopyText(view, now_unix_ms); !copy.empty())
    rows.push_back({"copy in memory", copy});
  rows.push_back({"nodes", SanitizeForTerminal(NodeList(record))});
  if (view.ranks > 0) rows.push_back({"ranks", std::to_string(view.ranks)});
  rows.push_back({"started", TimeText(record.started_unix_ms)});
  if (ended) rows.push_back({"ended", TimeText(view.ended_unix_ms)});
  const int64_t until = ended ? view.ended_unix_ms : now_unix_ms;
  rows.push_back({"duration", WholeDuration(until - record.started_unix_ms)});
  const std::optional<Goodput>& goodput = end && end->goodput ? end->goodput : view.goodput;
  if (goodput) rows.push_back({"goodput", GoodputText(*goodput)});
  rows.push_back({"events", folder + "/events.jsonl"});
  std::string text = TextTable(rows);
  if (end) text += "\n" + SummaryText(*end);
  return text;
}

}  // namespace dslaunch
