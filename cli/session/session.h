// Runs a job at the front end: connects to all nodes in parallel, starts the job, shows its output
// and ends it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/log/log_file.h"
#include "cli/core/session_core.h"
#include "cli/core/session_options.h"
#include "cli/metrics/job_metrics.h"
#include "cli/metrics/metrics_server.h"
#include "cli/output/job_output.h"
#include "cli/session/event_log.h"
#include "cli/session/job_summary.h"
#include "cli/session/progress_file.h"
#include "cli/session/session_links.h"
#include "cli/session/session_stdin.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Carries out the actions of a SessionCore on nodes, terminal and timers, and passes the results to
// the core, which makes all decisions. Runs on the caller's thread. Threads that own the objects
// they use connect to nodes and wait for their ends, so an interrupted session does not wait for
// hosts that never answer. Destroying a session ends the processes that still run on its nodes,
// unless the session was detached; a link may need a moment for that.
class LaunchSession {
 public:
  // Prepares a job that has not started yet. `terminal` must outlive the session; the transport
  // must outlive its users.
  LaunchSession(SessionOptions options, std::shared_ptr<Transport> transport, Terminal& terminal);
  ~LaunchSession();
  LaunchSession(const LaunchSession&) = delete;

  // Runs the job. Blocks until the job has ended and every node has confirmed its teardown, or
  // until the time limit of that wait has passed. Returns the exit code; everything that the user
  // must know has been shown. With `detach`, returns 0 as soon as every worker of every node has
  // started. Call it once.
  int Run();

  // Returns whether the session was detached. The job then continues, and its end is not known.
  bool detached() const { return detached_; }

  // Returns in one line how the job ended. Call it after Run.
  const std::string& final_status() const { return final_status_; }

  // Returns a function that shows the user a line while Run runs, and does nothing afterwards. The
  // function may be called on any thread, and after the session is destroyed.
  std::function<void(const std::string& text)> Teller();

 private:
  using Timers = std::map<SessionTimer, asio::steady_timer>;

  void OpenLog();
  // Opens the destinations of metrics. Returns an error if one of them cannot be opened.
  Result<void> OpenMetrics();
  void AwaitSignals();
  void OnEvent(size_t index, const pb::NodeEvent& event);

  // Carries out the core's actions in order.
  void Carry(SessionCore::Actions actions);
  void Do(const action::Log& line) { Log(line.level, line.text); }
  void Do(const action::Record& record);
  void Do(const action::ShowRanks& show) { output_.SetShownRanks(show.ranks); }
  void Do(const action::SetTimer& set);
  void Do(const action::Finish&) { loop_.stop(); }

  // Ends the session (session_end.cc): reports that the job was detached, or closes the connections
  // to the nodes and reports how the job ended. Returns the exit code of Run().
  int Conclude();

  // Leaves the job running and prints its id. Returns 0.
  int ReportDetached();

  // Writes the summary of `end` to events.jsonl and the log, after a failure also to the error
  // file, and as JSON to stdout if requested. Prints it on the terminal if `show` is set and the
  // log level allows it.
  void Report(const JobEnd& end, bool show);

  bool ShouldPrint(LogLevel level) const { return level <= options_.log_level; }
  // Writes to the log file, and to the terminal if the terminal shows the level.
  void Log(LogLevel level, const std::string& text) {
    log_.Write(level, text);
    if (ShouldPrint(level)) output_.PrintMessage("dslaunch: " + text);
  }
  void SetPhase(const std::string& phase) {
    if (ShouldPrint(LogLevel::kInfo)) output_.SetPhase(phase);
  }
  SessionLinks::Handlers LinkHandlers();

  const SessionOptions options_;
  const Clock::time_point started_at_ = Clock::now();
  asio::io_context loop_{1};
  SessionCore core_;
  JobOutput output_;
  LogFile log_;
  ProgressFile progress_;
  NewestEvaluation evaluation_;
  EventLog events_;  // declared after log_, to which its constructor may report an error
  SessionStdin stdin_;
  std::optional<JobMetrics> metrics_;  // metrics of the job; nullopt if none were requested
  std::unique_ptr<MetricsServer> metrics_server_;
  asio::signal_set signals_;
  Timers timers_;
  SessionLinks links_;  // declared last, because its destructor runs handlers that are still queued
  bool detached_ = false;
  std::string final_status_;
};

}  // namespace dslaunch
