#include "cli/commands/job_commands.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "base/count.h"
#include "base/os/ownership.h"
#include "base/os/process_tree.h"
#include "base/os/put_file.h"
#include "base/text/sanitize.h"
#include "cli/commands/attach_session.h"
#include "cli/commands/job_end.h"
#include "cli/commands/job_view.h"
#include "cli/commands/logs_session.h"
#include "cli/commands/metrics_scrape.h"
#include "cli/commands/node_inspection.h"
#include "cli/commands/report_collect.h"
#include "cli/commands/top_session.h"
#include "cli/core/call_times.h"
#include "cli/core/session_options.h"
#include "cli/output/print_text.h"
#include "cli/report/report_compare.h"
#include "cli/report/report_files.h"
#include "cli/report/report_page.h"
#include "cli/session/event_log.h"
#include "cli/session/job_record.h"
#include "cli/session/open_files.h"
#include "cli/session/progress_file.h"
#include "cli/session/summary_json.h"
#include "cli/stacks/stacks_text.h"
#include "cli/top/top_json.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAskTimeout(5'000);    // time limit of `ps` for all nodes of all jobs
constexpr milliseconds kFindTimeout(20'000);  // time limit for the answers of all nodes of a job
// Limit for removing a job, whose nodes may have many files.
constexpr milliseconds kRemoveTimeout(60'000);
// Limit for collecting the files of a report from all nodes.
constexpr milliseconds kCollectTimeout(60'000);
constexpr milliseconds kStopSlack(10'000);
constexpr milliseconds kFrontEndEnds(300'000);  // limit for the exit of a signalled front end
constexpr size_t kMaxEventsBytes = 64 << 20;
constexpr milliseconds kPoll(50);
// Pause after which a second signal counts separately.
constexpr milliseconds kBetweenInterrupts(300);

std::optional<ProcessId> FrontEnd(const JobRecord& record) {
  const auto pid = static_cast<pid_t>(record.pid);
  if (pid <= 0) return std::nullopt;
  const std::optional<ProcessInfo> info = ReadProcess(pid);
  if (!info || info->ended || info->id.start_ticks != record.start_ticks) return std::nullopt;
  return info->id;
}

bool NeedsNodes(const JobRecord& record) { return record.ended_unix_ms == 0 && !FrontEnd(record); }

// Returns the path of the folder that the front end uses for a job.
std::string FrontEndFolder(const JobRecord& record) {
  return (record.log_dir.empty() ? OwnJobsFolder() : record.log_dir) + "/" + record.job_id;
}

// Returns whether the answer of one node determines the state of the job, whatever other nodes
// answer.
bool SettlesJob(const Result<pb::JobSight>& sight) {
  if (!sight.ok()) return false;
  return sight->state() == pb::JobSight::RUNNING ||
         (sight->state() == pb::JobSight::ENDED && sight->result().done().completed());
}

// Inspects the nodes of all jobs at once. For a single job, stops waiting for unreachable nodes
// once an answer determines the state.
std::vector<JobView> InspectJobs(const std::vector<JobRecord>& records, const AgentBinary& agent,
                                 milliseconds timeout) {
  // Pairs of an index in `records` and an index of a node.
  std::vector<std::pair<size_t, size_t>> questions;
  for (size_t job = 0; job < records.size(); ++job) {
    if (!NeedsNodes(records[job])) continue;
    for (size_t node = 0; node < records[job].nodes.size(); ++node)
      questions.emplace_back(job, node);
  }
  const Deadline deadline = Deadline::After(timeout);
  const auto answers = AskAll<Result<pb::JobSight>>(
      questions.size(), deadline,
      [records, agent, questions, deadline](size_t i) {
        const auto [job, node] = questions[i];
        return InspectNode(records[job], node, agent, deadline);
      },
      [is_single = records.size() == 1](const Result<pb::JobSight>& sight) {
        return is_single && SettlesJob(sight);
      });
  std::map<size_t, std::vector<NodeAnswer>> by_job;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto [job, node] = questions[i];
    NodeAnswer answer;
    if (answers[i] && answers[i]->ok())
      answer.sight = **answers[i];
    else
      answer.reason = answers[i] ? answers[i]->error().message
                                 : records[job].nodes[node].name + " did not answer in time";
    by_job[job].push_back(std::move(answer));
  }
  std::vector<JobView> views;
  for (size_t job = 0; job < records.size(); ++job) {
    const bool alive = FrontEnd(records[job]).has_value();
    JobView& view = views.emplace_back(MakeJobView(records[job], alive, by_job[job]));
    if (view.state != JobView::State::kFrontEnd) continue;
    const JobProgress progress =
        ReadProgress(FrontEndFolder(records[job]), !records[job].log_dir.empty());
    view.ranks = progress.ranks;
    view.step = progress.step;
    view.total_steps = progress.total_steps;
    view.copy = {progress.copied_step, progress.copied_unix_ms};
  }
  return views;
}

// Returns the beginning of a file in the front end's folder of the job; empty if the file does not
// exist.
std::string FrontEndFile(const JobRecord& record, const std::string& name) {
  const std::string path = FrontEndFolder(record);
  const Result<UniqueFd> folder =
      OpenFrontEndFolder(path, !record.log_dir.empty(), IfMissing::kFail);
  if (!folder.ok() || !folder->valid()) return "";
  const Result<UniqueFd> file = OpenOwnFile(*folder, name, path + "/" + name, ::geteuid());
  if (!file.ok() || !file->valid()) return "";
  std::string text(kMaxEventsBytes, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(file->get(), text.data() + size, text.size() - size);
    if (count <= 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  return text;
}

std::string EventsText(const JobRecord& record) { return FrontEndFile(record, "events.jsonl"); }

// Returns the last whole lines of a file on this machine; empty if the file cannot be read.
std::string LastBytes(const std::string& path) {
  constexpr off_t kMostBytes = 8 << 10;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  const off_t begin = std::max<off_t>(info.st_size - kMostBytes, 0);
  std::string text(static_cast<size_t>(info.st_size - begin), '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return begin > 0 ? text.substr(std::min(text.find('\n') + 1, text.size())) : text;
}

// Stores how the job ended in its record and, as its front end would have done, in its events.
// Afterwards the job's nodes need not be asked again.
void StoreEnd(const JobView& view) {
  if (view.state != JobView::State::kEnded || view.record.ended_unix_ms != 0) return;
  Result<JobRecord> record = ReadJobRecord(OwnJobsFolder(), view.record.job_id);
  if (!record.ok() || record->ended_unix_ms != 0) return;
  if (view.result) {
    const JobTrace trace = ReadJobTrace(EventsText(*record), *record);
    if (!trace.end) {
      JobSummary end = SummarizeResult(*record, *view.result, view.result_node, trace);
      end.goodput = view.goodput;
      if (end.is_local && !end.cause.log_path.empty())
        end.cause.last_lines = LastBytes(end.cause.log_path);
      EventLog events(FrontEndFolder(*record), !record->log_dir.empty(), [](const std::string&) {});
      std::vector<std::string> names;
      for (const auto& node : record->nodes) names.push_back(node.name);
      for (const TimedEvent& missing : MissingEvents(*view.result, trace))
        events.Record(names, view.result_node, missing.event, missing.unix_ms);
      events.Ended(SummaryJson(end));
    }
  }
  record->ended_unix_ms = view.ended_unix_ms;
  record->exit_code = view.exit_code;
  (void)WriteJobRecord(OwnJobsFolder(), *record);  // after a failure, the nodes are asked again
}

// Returns the end recorded in events.jsonl; nullopt if the job is running or its end is unknown.
std::optional<JobSummary> FindEnd(const JobRecord& record) {
  return ReadJobTrace(EventsText(record), record).end;
}

void Print(Terminal& terminal, const std::string& text) {
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    terminal.Out(std::string_view(text).substr(start, end - start));
    start = end + 1;
  }
}

int ListJobs(const JobCommand& command, std::vector<JobView> views, Terminal& terminal) {
  for (const JobView& view : views) {
    if (view.state == JobView::State::kStray || view.state == JobView::State::kUnreachable)
      terminal.Err("dslaunch: job " + view.record.job_id + ": " + view.detail);
  }
  if (!command.all) {
    std::erase_if(views, [](const JobView& view) {
      return view.state == JobView::State::kEnded || view.state == JobView::State::kLost;
    });
  }
  Print(terminal,
        command.json ? JobsJson(views) : JobTable(views, UnixMs(), Columns(STDOUT_FILENO)));
  return ToInt(ExitCode::kOk);
}

// Prints the metrics of all running jobs, or of the job that the command names.
Result<int> PrintMetrics(const JobCommand& command, std::vector<JobRecord> records,
                         const AgentBinary& agent, Terminal& terminal) {
  if (!command.job.empty() && records.front().ended_unix_ms != 0)
    return Error{ExitCode::kUnavailable, "job " + records.front().job_id + " has ended"};
  std::erase_if(records, [](const JobRecord& record) { return record.ended_unix_ms != 0; });
  size_t nodes = 0;
  for (const JobRecord& record : records) nodes += record.nodes.size();
  DSL_TRY(CheckOpenFiles(nodes, ReadOpenFiles()));
  const ScrapedMetrics scraped = ScrapeMetrics(records, agent, Deadline::After(kAskTimeout));
  for (const std::string& trouble : scraped.troubles) terminal.Err("dslaunch: " + trouble);
  Print(terminal, scraped.text);
  return ToInt(scraped.troubles.empty() ? ExitCode::kOk : ExitCode::kUnavailable);
}

// Removes the folders of a job from its nodes, then from this machine.
Result<void> Remove(const JobRecord& record, const AgentBinary& agent) {
  const Deadline deadline = Deadline::After(kRemoveTimeout);
  const auto answers =
      AskAll<Result<void>>(record.nodes.size(), deadline, [record, agent, deadline](size_t node) {
        return RemoveFromNode(record, node, agent, deadline);
      });
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i])
      return Error{ExitCode::kTimedOut, record.nodes[i].name + " did not answer in time"};
    DSL_TRY(*answers[i]);
  }
  std::error_code error;
  std::filesystem::remove_all(std::filesystem::path(OwnJobsFolder()) / record.job_id, error);
  if (error) return Error{ExitCode::kIo, "cannot remove its folder here: " + error.message()};
  return {};
}

int Prune(const JobCommand& command, const std::vector<JobView>& views, const AgentBinary& agent,
          Terminal& terminal) {
  int exit_code = ToInt(ExitCode::kOk);
  size_t removed = 0;
  for (const JobView& view : views) {
    const bool ended = view.state == JobView::State::kEnded;
    if (!ended && view.state != JobView::State::kLost) continue;
    const int64_t since = ended ? view.ended_unix_ms : view.record.started_unix_ms;
    if (UnixMs() - since < command.older_than_ms) continue;
    const Result<void> gone = Remove(view.record, agent);
    if (gone.ok()) {
      ++removed;
      continue;
    }
    terminal.Err("dslaunch: job " + view.record.job_id + " is kept: " + gone.error().message);
    exit_code = ToInt(gone.error().code);
  }
  terminal.Err("dslaunch: removed " + Count(removed, "job"));
  return exit_code;
}

// Stops a job by signals to its front end, as Ctrl-C would.
Result<int> StopFrontEnd(const JobRecord& record, const ProcessId& front_end, bool now,
                         Terminal& terminal) {
  SignalProcess(front_end, now ? SIGINT : SIGTERM);
  if (now) {
    std::this_thread::sleep_for(kBetweenInterrupts);
    SignalProcess(front_end, SIGINT);
  }
  const Deadline deadline = Deadline::After(kFrontEndEnds);
  while (FrontEnd(record)) {
    if (deadline.Expired()) {
      return Error{ExitCode::kTimedOut, "the front end of job " + record.job_id + " (pid " +
                                            std::to_string(record.pid) + ") does not end"};
    }
    std::this_thread::sleep_for(kPoll);
  }
  terminal.Err("dslaunch: job " + record.job_id + " is stopped");
  return ToInt(ExitCode::kOk);
}

// Prints the summary of a job that has ended, as its front end would have done. `output` is the
// output of the job that was shown before; null for none.
void ShowEnd(const JobRecord& record, const JobOutput* output, Terminal& terminal) {
  std::optional<JobSummary> end = FindEnd(record);
  if (!end) return;
  end->cause.was_shown = output != nullptr && output->HasShown(end->cause);
  terminal.Err(SummaryText(*end));
}

// Prints why a job is not running and returns the exit code of the command.
Result<int> NotRunning(const JobView& view, Terminal& terminal, bool stop) {
  const std::string job = "job " + view.record.job_id;
  switch (view.state) {
    case JobView::State::kEnded:
      terminal.Err("dslaunch: " + job + " has ended with exit code " +
                   std::to_string(view.exit_code));
      if (!stop) ShowEnd(view.record, nullptr, terminal);
      return stop ? ToInt(ExitCode::kOk) : view.exit_code;
    case JobView::State::kLost:
      terminal.Err("dslaunch: nothing of " + job + " runs, and there is no record of how it ended");
      return ToInt(stop ? ExitCode::kOk : ExitCode::kUnavailable);
    default:
      return Error{ExitCode::kUnavailable, job + ": " + view.detail};
  }
}

Result<int> Attach(const JobCommand& command, const JobView& view, const AgentBinary& agent,
                   Terminal& terminal) {
  if (view.state == JobView::State::kFrontEnd) {
    return Error{ExitCode::kUsage, "job " + view.record.job_id +
                                       " is not detached: its front end is process " +
                                       std::to_string(view.record.pid) + " of this machine (in " +
                                       view.record.cwd + "); dslaunch logs -f shows its output"};
  }
  if (view.state != JobView::State::kRunning) return NotRunning(view, terminal, false);
  AttachSession session(view.record, agent, command.shown_ranks, terminal);
  const int exit_code = session.Attach();
  if (session.end()) {
    StoreEnd(*session.end());
    ShowEnd(view.record, &session.output(), terminal);
  }
  return exit_code;
}

// Waits until the front end of a job that has ended has recorded the end, then prints the summary.
void ShowEndOfTop(const JobRecord& record, const AgentBinary& agent, Terminal& terminal) {
  const Deadline deadline = Deadline::After(kStopSlack);
  while (FrontEnd(record) && !deadline.Expired()) std::this_thread::sleep_for(kPoll);
  if (NeedsNodes(record)) StoreEnd(InspectJobs({record}, agent, kAskTimeout).front());
  terminal.Err("dslaunch: job " + record.job_id + " has ended");
  ShowEnd(record, nullptr, terminal);
}

Result<int> Top(const JobCommand& command, const JobView& view, const AgentBinary& agent,
                Terminal& terminal) {
  const bool runs =
      view.state == JobView::State::kFrontEnd || view.state == JobView::State::kRunning;
  if (!runs) return NotRunning(view, terminal, false);
  const JobRecord& record = view.record;
  TopSession session(record, agent, [record] {
    const std::optional<ProcessId> front_end = FrontEnd(record);
    return front_end && SignalProcess(*front_end, SIGTERM);
  });
  if (command.once || command.json) {
    DSL_TRY(session.Measure());
    const size_t columns = Columns(STDOUT_FILENO);
    constexpr size_t kColumnsOfText = 120;
    Print(terminal, command.json ? TopJson(session.model(), record.job_id, Clock::now())
                                 : TopText(session.model(), session.job(), {Clock::now(), UnixMs()},
                                           columns > 0 ? columns : kColumnsOfText));
    return ToInt(ExitCode::kOk);
  }
  DSL_TRY_ASSIGN(const TopSession::End end, session.Show());
  if (end == TopSession::End::kJobEnded) ShowEndOfTop(record, agent, terminal);
  return ToInt(ExitCode::kOk);
}

int Describe(const JobView& view, Terminal& terminal) {
  Print(terminal, DescribeJob(view, FindEnd(view.record), FrontEndFolder(view.record), UnixMs()));
  return ToInt(ExitCode::kOk);
}

// Prints the output of the job's ranks. If the output is followed to the job's end, prints the
// summary too.
int Logs(const JobCommand& command, const JobRecord& record, const AgentBinary& agent,
         Terminal& terminal) {
  LogsSession session(record, agent, command, terminal);
  const int exit_code = session.Run();
  if (exit_code != ToInt(ExitCode::kOk)) return exit_code;
  if (NeedsNodes(record)) StoreEnd(InspectJobs({record}, agent, kAskTimeout).front());
  ShowEnd(record, &session.output(), terminal);
  return exit_code;
}

Result<int> Stop(const JobCommand& command, const JobView& view, const AgentBinary& agent,
                 Terminal& terminal) {
  if (const std::optional<ProcessId> front_end = FrontEnd(view.record))
    return StopFrontEnd(view.record, *front_end, command.now, terminal);
  if (view.state != JobView::State::kRunning) return NotRunning(view, terminal, true);
  AttachSession session(view.record, agent, {false, {}}, terminal);
  const int exit_code =
      session.Stop(command.now, milliseconds(view.stop_within_ms) + kFindTimeout + kStopSlack);
  if (session.end()) StoreEnd(*session.end());
  return exit_code;
}

ReportData MakeReportData(const JobView& view, RankFileParts::Files files) {
  ReportData data;
  data.job_id = view.record.job_id;
  for (const std::string& word : view.record.argv)
    data.command += (data.command.empty() ? "" : " ") + SanitizeForTerminal(word);
  data.state = StateText(view);
  data.detail = view.detail;
  data.ended = view.state == JobView::State::kEnded;
  data.exit_code = view.exit_code;
  data.started_unix_ms = view.record.started_unix_ms;
  data.ended_unix_ms = view.ended_unix_ms;
  data.made_unix_ms = UnixMs();
  if (view.copy) {
    data.copied_step = view.copy->step;
    data.copied_unix_ms = view.copy->unix_ms;
  }
  for (const NodeTarget& node : view.record.nodes) data.nodes.push_back(node.name);
  data.events = ReadJobEvents(EventsText(view.record));
  data.preflight = ReadPreflight(FrontEndFile(view.record, kPreflightName));
  data.ranks = std::move(files.ranks);
  data.troubles = std::move(files.troubles);
  return data;
}

Result<int> Report(const JobCommand& command, const JobView& view, const AgentBinary& agent,
                   Terminal& terminal) {
  const std::string path = command.output.empty() ? view.record.job_id + ".html" : command.output;
  // If the file exists, the data of the nodes cannot be written, so the file is checked first.
  if (!command.force && ::access(path.c_str(), F_OK) == 0) return FileInTheWay(path);
  CollectedFiles collected = CollectRankFiles(view.record, agent, kCollectTimeout);
  for (const std::string& trouble : collected.files.troubles) terminal.Err("dslaunch: " + trouble);
  DSL_TRY(
      PutFile(path, ReportPage(MakeReportData(view, std::move(collected.files))), command.force));
  terminal.Err("dslaunch: wrote " + path);
  return ToInt(collected.all_answered ? ExitCode::kOk : ExitCode::kUnavailable);
}

// Prints the differences between two jobs and writes a page that compares them.
Result<int> CompareReports(const JobCommand& command, const std::array<JobView, 2>& views,
                           const AgentBinary& agent, Terminal& terminal) {
  const std::string path =
      !command.output.empty() ? command.output
                              : views[0].record.job_id + "-and-" + views[1].record.job_id + ".html";
  if (!command.force && ::access(path.c_str(), F_OK) == 0) return FileInTheWay(path);
  std::array<ReportData, 2> data;
  bool all_answered = true;
  for (size_t i = 0; i < 2; ++i) {
    CollectedFiles collected = CollectRankFiles(views[i].record, agent, kCollectTimeout);
    for (const std::string& trouble : collected.files.troubles)
      terminal.Err("dslaunch: " + trouble);
    all_answered = all_answered && collected.all_answered;
    data[i] = MakeReportData(views[i], std::move(collected.files));
  }
  DSL_TRY(PutFile(path, ComparisonPage(data), command.force));
  Print(terminal, ComparisonText(data));
  terminal.Err("dslaunch: wrote " + path);
  return ToInt(all_answered ? ExitCode::kOk : ExitCode::kUnavailable);
}

Result<int> Stacks(const JobCommand& command, const JobRecord& record, const AgentBinary& agent,
                   Terminal& terminal) {
  if (record.ended_unix_ms != 0)
    return Error{ExitCode::kUnavailable, "job " + record.job_id + " has ended"};
  pb::StacksRequest request;
  request.set_all(!command.only_rank.has_value());
  if (command.only_rank) request.add_ranks(static_cast<uint32_t>(*command.only_rank));
  const Deadline deadline = Deadline::After(kConnectTimeout + kStacksTimeout);
  const auto answers = AskAll<Result<pb::StacksReply>>(
      record.nodes.size(), deadline, [record, request, agent, deadline](size_t node) {
        return StacksOfNode(record, node, request, agent, deadline);
      });
  std::vector<NodeStacks> nodes;
  size_t ranks = 0;
  bool any_answer = false;
  for (size_t i = 0; i < answers.size(); ++i) {
    NodeStacks& node = nodes.emplace_back();
    node.node = record.nodes[i].name;
    if (!answers[i] || !answers[i]->ok()) {
      node.trouble =
          answers[i] ? answers[i]->error().message : node.node + " did not answer in time";
      continue;
    }
    any_answer = true;
    for (const pb::RankStacks& stacks : (*answers[i])->ranks()) node.ranks.push_back(stacks);
    ranks += node.ranks.size();
  }
  if (!any_answer) return Error{ExitCode::kUnavailable, nodes.front().trouble};
  if (ranks == 0) {
    return Error{ExitCode::kUnavailable,
                 command.only_rank ? "rank " + std::to_string(*command.only_rank) + " of job " +
                                         record.job_id + " does not run on a node that answered"
                                   : "no rank of job " + record.job_id + " runs"};
  }
  terminal.Out(command.json ? StacksJson(record.job_id, nodes) : StacksText(nodes));
  return ToInt(ExitCode::kOk);
}

}  // namespace

Result<int> RunJobCommand(const JobCommand& command, Terminal& terminal) {
  DSL_TRY_ASSIGN(std::vector<JobRecord> records, ListJobRecords(OwnJobsFolder()));
  for (JobRecord& record : records) {
    if (command.ssh_command.empty()) continue;
    record.ssh_command = command.ssh_command;
    if (!record.exec_command.empty()) record.launcher = Launcher::kSsh;
    record.exec_command.clear();
  }
  DSL_TRY_ASSIGN(const AgentBinary agent, FindAgentBinary());
  if (command.kind == JobCommand::Kind::kPs && !command.job.empty()) {
    DSL_TRY_ASSIGN(JobRecord named, FindJob(records, command.job));
    records = {std::move(named)};
  }
  if (command.kind == JobCommand::Kind::kPs && command.openmetrics)
    return PrintMetrics(command, std::move(records), agent, terminal);
  if (command.kind == JobCommand::Kind::kPs) {
    size_t nodes = 0;
    for (const JobRecord& record : records) nodes += NeedsNodes(record) ? record.nodes.size() : 0;
    DSL_TRY(CheckOpenFiles(nodes, ReadOpenFiles()));
    std::vector<JobView> views = InspectJobs(records, agent, kAskTimeout);
    for (const JobView& view : views) StoreEnd(view);
    return command.prune ? Prune(command, views, agent, terminal)
                         : ListJobs(command, std::move(views), terminal);
  }
  DSL_TRY_ASSIGN(const JobRecord record, FindJob(records, command.job));
  DSL_TRY(CheckOpenFiles(record.nodes.size(), ReadOpenFiles()));
  if (command.kind == JobCommand::Kind::kLogs) return Logs(command, record, agent, terminal);
  if (command.kind == JobCommand::Kind::kStacks) return Stacks(command, record, agent, terminal);
  const JobView view = InspectJobs({record}, agent, kFindTimeout).front();
  StoreEnd(view);
  if (command.kind == JobCommand::Kind::kDescribe) return Describe(view, terminal);
  if (command.kind == JobCommand::Kind::kReport && !command.compare.empty()) {
    DSL_TRY_ASSIGN(const JobRecord before, FindJob(records, command.compare));
    const JobView view_before = InspectJobs({before}, agent, kFindTimeout).front();
    StoreEnd(view_before);
    return CompareReports(command, {view_before, view}, agent, terminal);
  }
  if (command.kind == JobCommand::Kind::kReport) return Report(command, view, agent, terminal);
  if (command.kind == JobCommand::Kind::kTop) return Top(command, view, agent, terminal);
  return command.kind == JobCommand::Kind::kAttach ? Attach(command, view, agent, terminal)
                                                   : Stop(command, view, agent, terminal);
}

std::vector<JobView> JobsRunningOn(const std::vector<std::string>& hosts,
                                   const AgentBinary& agent) {
  Result<std::vector<JobRecord>> records = ListJobRecords(OwnJobsFolder());
  if (!records.ok()) return {};
  std::erase_if(*records, [&](const JobRecord& record) {
    return record.ended_unix_ms != 0 ||
           std::ranges::none_of(record.nodes, [&](const NodeTarget& node) {
             return std::ranges::find(hosts, node.host) != hosts.end();
           });
  });
  std::vector<JobView> views = InspectJobs(*records, agent, kAskTimeout);
  std::erase_if(views, [](const JobView& view) {
    return view.state != JobView::State::kFrontEnd && view.state != JobView::State::kRunning;
  });
  return views;
}

}  // namespace dslaunch
