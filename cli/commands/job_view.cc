#include "cli/commands/job_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "base/text/suggest.h"
#include "base/text/text_table.h"
#include "cli/session/summary_json.h"
#include "proto/contract/status_line.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxNamed = 3;  // limit of the jobs that an error message names

void ApplyStatus(const pb::JobStatus& status, JobView& view) {
  view.stop_within_ms = std::max<int64_t>(view.stop_within_ms, status.stop_within_ms());
  view.ranks = std::max(view.ranks, static_cast<int>(status.world_size()));
  if (status.phase() == pb::JobStatus::RESTARTING) view.detail = "restarting";
  if (status.phase() == pb::JobStatus::STOPPING) view.detail = "stopping";
  for (const pb::WorkerStatus& newest : status.status()) {
    const std::optional<StatusLine> line = StatusLine::Parse(newest.line());
    if (!line || line->event != StatusLine::Event::kStep || line->step <= view.step) continue;
    view.step = line->step;
    view.total_steps = line->total_steps;
  }
  if (status.pids_size() == 0) return;  // a spare has no processes, so nothing is printed
  const int64_t copied = status.has_copied_step() ? static_cast<int64_t>(status.copied_step()) : -1;
  if (!view.copy || copied < view.copy->step) view.copy = {copied, status.copied_unix_ms()};
}

// Returns an age in its largest unit only, because seconds do not matter for a job that ended an
// hour ago.
std::string Age(int64_t ms) {
  const int64_t s = std::max<int64_t>(ms, 0) / 1000;
  const int64_t unit = s < 60 ? 1 : s < 3600 ? 60 : s < 48 * 3600 ? 3600 : 86'400;
  return DurationText(s / unit * unit * 1000);
}

std::string CommandText(const JobRecord& record) {
  std::string command;
  for (size_t i = 1; i < record.argv.size(); ++i) command += (i > 1 ? " " : "") + record.argv[i];
  for (char& c : command) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return command;
}

std::string StrayText(const std::string& node, const pb::JobSight& sight) {
  std::string text = node + " has processes of it without an agent:";
  for (const int pid : sight.pids()) text += " " + std::to_string(pid);
  return text;
}

std::string Cut(std::string text, size_t most) {
  constexpr std::string_view kCut = "...";
  if (text.size() <= most) return text;
  // Move the cut to the beginning of a UTF-8 character.
  while (most > kCut.size() && (text[most - kCut.size()] & 0xC0) == 0x80) --most;
  return text.substr(0, most - kCut.size()).append(kCut);
}

}  // namespace

Result<JobRecord> FindJob(const std::vector<JobRecord>& records, const std::string& text) {
  if (records.empty())
    return Error{ExitCode::kUsage, "no job was started from this machine by this user"};
  if (text == "last") return records.back();
  std::vector<const JobRecord*> matches;
  std::vector<std::string> ids;
  for (const JobRecord& record : records) {
    if (record.job_id == text) return record;
    if (!text.empty() && record.job_id.find(text) != std::string::npos) matches.push_back(&record);
    ids.push_back(record.job_id);
  }
  if (matches.size() == 1) return *matches.front();
  if (matches.size() > 1) {
    std::string names;
    for (size_t i = 0; i < std::min(matches.size(), kMaxNamed); ++i)
      names += (i > 0 ? ", " : "") + matches[i]->job_id;
    if (matches.size() > kMaxNamed) names += ", ...";
    return Error{ExitCode::kUsage, Quoted(text) + " is a part of " +
                                       std::to_string(matches.size()) + " jobs (" + names +
                                       "); give more characters"};
  }
  const std::string near = Nearest(text, ids);
  return Error{ExitCode::kUsage,
               "no job " + Quoted(text) + (near.empty() ? "" : "; did you mean " + near + "?") +
                   (near.empty() ? "; " : " ") + "dslaunch ps --all lists all jobs"};
}

const pb::JobResult* ChooseResult(const std::vector<const pb::JobResult*>& results) {
  const pb::JobResult* best = nullptr;
  const auto rank = [](const pb::JobResult& result) {
    return (result.done().completed() ? 2 : 0) + (result.exit_code() != 0 ? 1 : 0);
  };
  for (const pb::JobResult* result : results) {
    if (best == nullptr || rank(*result) > rank(*best)) best = result;
  }
  return best;
}

JobView MakeJobView(const JobRecord& record, bool front_end_alive,
                    const std::vector<NodeAnswer>& answers) {
  JobView view;
  view.record = record;
  if (record.ended_unix_ms != 0) {
    view.state = JobView::State::kEnded;
    view.exit_code = record.exit_code;
    view.ended_unix_ms = record.ended_unix_ms;
    return view;
  }
  if (front_end_alive) {
    view.state = JobView::State::kFrontEnd;
    return view;
  }
  std::vector<const pb::JobResult*> results;
  std::vector<size_t> result_nodes;
  std::vector<const pb::NodeGoodput*> goodput;
  bool running = false;
  std::string unreachable, stray;
  for (size_t i = 0; i < answers.size(); ++i) {
    const NodeAnswer& answer = answers[i];
    if (!answer.sight) {
      unreachable = answer.reason;
      continue;
    }
    if (answer.sight->state() == pb::JobSight::RUNNING) {
      ApplyStatus(answer.sight->status(), view);
      goodput.push_back(&answer.sight->status().goodput());
      running = true;
    }
    if (answer.sight->state() == pb::JobSight::ENDED) {
      results.push_back(&answer.sight->result());
      goodput.push_back(&answer.sight->result().done().goodput());
      result_nodes.push_back(i);
    }
    if (answer.sight->state() == pb::JobSight::STRAY)
      stray = StrayText(record.nodes[i].name, *answer.sight);
  }
  view.goodput = SumOfNodes(goodput);
  const pb::JobResult* const result = ChooseResult(results);
  const bool is_final_status = result != nullptr && result->done().completed();
  if (running) {
    view.state = JobView::State::kRunning;
  } else if (!stray.empty()) {
    view.state = JobView::State::kStray;
    view.detail = stray;
  } else if (!unreachable.empty() && !is_final_status) {
    view.state = JobView::State::kUnreachable;
    view.detail = unreachable;
  } else if (result != nullptr) {
    view.state = JobView::State::kEnded;
    view.exit_code = result->exit_code();
    view.ended_unix_ms = result->ended_unix_ms();
    view.detail = CauseText(result->cause(), record.NodeName(result->cause().node_index()));
    view.result = *result;
    view.result_node =
        result_nodes[static_cast<size_t>(std::ranges::find(results, result) - results.begin())];
  }
  return view;
}

std::string StateText(const JobView& view) {
  switch (view.state) {
    case JobView::State::kFrontEnd:
      return "running (front end alive)";
    case JobView::State::kRunning:
      return view.detail.empty() ? "running" : view.detail;
    case JobView::State::kEnded:
      return "ended (" + std::to_string(view.exit_code) + ")";
    case JobView::State::kStray:
      return "stray processes";
    case JobView::State::kUnreachable:
      return "unreachable";
    case JobView::State::kLost:
      break;
  }
  return "lost";
}

std::string WholeDuration(int64_t ms) { return DurationText(ms / 1000 * 1000); }

std::string StepText(const JobView& view) {
  if (view.step < 0) return "-";
  const std::string step = std::to_string(view.step);
  return view.total_steps > 0 ? step + "/" + std::to_string(view.total_steps) : step;
}

std::string CopyText(const JobView& view, int64_t now_unix_ms) {
  if (!view.copy || view.copy->step < 0) return "";
  return "step " + std::to_string(view.copy->step) + ", " + Age(now_unix_ms - view.copy->unix_ms) +
         " ago";
}

std::string JobTable(const std::vector<JobView>& views, int64_t now_unix_ms, size_t width) {
  const std::string command_head = "COMMAND";
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "STATE", "NODES", "RANKS", "STEP", "DURATION", "ENDED", command_head}};
  for (const JobView& view : views) {
    const bool ended = view.state == JobView::State::kEnded;
    const bool known = ended || view.state != JobView::State::kLost;
    const int64_t until = ended ? view.ended_unix_ms : now_unix_ms;
    rows.push_back({view.record.job_id, StateText(view), std::to_string(view.record.nodes.size()),
                    view.ranks > 0 ? std::to_string(view.ranks) : "-", StepText(view),
                    known ? WholeDuration(until - view.record.started_unix_ms) : "-",
                    ended ? Age(now_unix_ms - view.ended_unix_ms) + " ago" : "-",
                    CommandText(view.record)});
  }
  if (width > 0) {
    std::vector<std::vector<std::string>> others = rows;
    for (std::vector<std::string>& row : others) row.back() = command_head;
    const std::string table = TextTable(others);  // table whose lines all have the same width
    const size_t columns = table.find('\n') - command_head.size();
    const size_t most = std::max(width, columns + kLeastCommandColumns) - columns;
    for (std::vector<std::string>& row : rows) row.back() = Cut(std::move(row.back()), most);
  }
  return TextTable(rows);
}

std::string JobsJson(const std::vector<JobView>& views) {
  constexpr const char* kStates[] = {"front_end", "running",     "ended",
                                     "stray",     "unreachable", "lost"};
  Json jobs = Json::array();
  for (const JobView& view : views) {
    Json nodes = Json::array();
    for (const NodeTarget& node : view.record.nodes) nodes.push_back(node.name);
    Json job = {{"job", view.record.job_id},  {"state", kStates[static_cast<size_t>(view.state)]},
                {"detail", view.detail},      {"nodes", std::move(nodes)},
                {"ranks", nullptr},           {"step", nullptr},
                {"total_steps", nullptr},     {"copied_step", nullptr},
                {"copied_unix_ms", nullptr},  {"started_unix_ms", view.record.started_unix_ms},
                {"ended_unix_ms", nullptr},   {"exit_code", nullptr},
                {"command", view.record.argv}};
    if (view.ranks > 0) job["ranks"] = view.ranks;
    if (view.step >= 0) job["step"] = view.step;
    if (view.total_steps > 0) job["total_steps"] = view.total_steps;
    if (view.copy && view.copy->step >= 0) {
      job["copied_step"] = view.copy->step;
      job["copied_unix_ms"] = view.copy->unix_ms;
    }
    if (view.state == JobView::State::kEnded) {
      job["ended_unix_ms"] = view.ended_unix_ms;
      job["exit_code"] = view.exit_code;
    }
    job["goodput"] = GoodputJson(view.goodput);
    jobs.push_back(std::move(job));
  }
  return jobs.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dslaunch
