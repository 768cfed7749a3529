#include "cli/session/session.h"

#include <signal.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/count.h"
#include "base/os/put_file.h"
#include "base/text/size_text.h"
#include "cli/session/handled_signals.h"
#include "cli/session/job_record.h"

namespace dslaunch {
namespace {

// Limit of the final wait for a reader that has long accepted no output.
constexpr milliseconds kLastWordsLimit(1'000);

}  // namespace

LaunchSession::LaunchSession(SessionOptions options, std::shared_ptr<Transport> transport,
                             Terminal& terminal)
    : options_(std::move(options)),
      core_(options_, started_at_),
      output_(loop_, terminal, options_.tags),
      progress_(options_.job_folder, !options_.job.ranks().log_dir().empty()),
      events_(options_.job_folder, !options_.job.ranks().log_dir().empty(),
              [this](const std::string& text) { Log(LogLevel::kWarning, text); }),
      stdin_(
          loop_, options_.stdin_notice,
          [this](size_t node, const std::string& data, bool end, std::function<void(bool)> then) {
            links_.Input(node, data, end, std::move(then));
          },
          [this](const std::string& text) { Log(LogLevel::kInfo, text); }),
      signals_(loop_),
      links_(loop_, options_, core_, std::move(transport), LinkHandlers()) {}

LaunchSession::~LaunchSession() {
  timers_.clear();
  signals_.cancel();
}

SessionLinks::Handlers LaunchSession::LinkHandlers() {
  return {
      .carry = [this](SessionCore::Actions actions) { Carry(std::move(actions)); },
      .event = [this](size_t node, const pb::NodeEvent& event) { OnEvent(node, event); },
      .output =
          [this](size_t node, const pb::LogChunk& chunk, std::function<void()> go_on) {
            output_.Log(core_.nodes().names()[node], chunk, std::move(go_on));
          },
      .log = [this](LogLevel level, const std::string& text) { Log(level, text); },
      .stacks =
          [this](const std::vector<NodeStacks>& nodes) {
            Log(LogLevel::kError, "where the ranks are:\n" + StacksSummary(nodes));
            events_.Stacks(StacksJson(options_.job.job_id(), nodes));
          },
  };
}

void LaunchSession::OpenLog() {
  if (options_.job_folder.empty()) return;
  const Result<UniqueFd> folder = OpenFrontEndFolder(
      options_.job_folder, !options_.job.ranks().log_dir().empty(), IfMissing::kMake);
  if (!folder.ok()) return Log(LogLevel::kWarning, "no log is kept: " + folder.error().message);
  const Result<void> opened = log_.Open(options_.job_folder + "/" + kFrontEndLogName);
  if (!opened.ok()) Log(LogLevel::kWarning, opened.error().message);
  if (options_.preflight.empty()) return;
  const Result<void> kept = PutFile(options_.job_folder + "/" + kPreflightName, options_.preflight,
                                    /*overwrite=*/true);
  if (!kept.ok()) Log(LogLevel::kWarning, kept.error().message);
}

Result<void> LaunchSession::OpenMetrics() {
  if (!options_.metrics.any()) return {};
  metrics_.emplace(options_.job.job_id(), core_.nodes().names(), UnixMs());
  metrics_server_ = std::make_unique<MetricsServer>(
      loop_,
      [this](MetricsFormat format) { return MetricsText({&*metrics_}, format, Clock::now()); },
      [this](const std::string& text) { Log(LogLevel::kWarning, text); });
  return metrics_server_->Open(options_.metrics);
}

int LaunchSession::Run() {
  for (const int signal_number : HandledSignals()) signals_.add(signal_number);
  AwaitSignals();
  OpenLog();
  if (const Result<void> opened = OpenMetrics(); !opened.ok()) {
    Log(LogLevel::kError, opened.error().message);
    signals_.clear();
    output_.Drain();
    return ToInt(opened.error().code);
  }
  stdin_.Open(options_.job.rank_stdin().from_front_end(), output_);
  events_.Planned(options_.job.job_id(), options_.plan, options_.job.ranks().program());
  // A rank may write output before its node has reported the start, so the number is set now.
  size_t most_slots = 0;
  for (const Host& node : options_.plan.nodes)
    most_slots = std::max(most_slots, static_cast<size_t>(node.slots));
  output_.SetShownRanks(options_.shown.CountRanks(static_cast<size_t>(options_.plan.world_size()),
                                                  options_.plan.nodes.size(), most_slots));
  if (options_.copy_list && ShouldPrint(LogLevel::kInfo)) {
    Log(LogLevel::kInfo, "copying " + Count(options_.copy_list->num_files, "file") + ", " +
                             SizeText(options_.copy_list->bytes) +
                             ", to nodes that lack them; ranks find them in $DSLAUNCH_COPY_DIR");
  }
  SetPhase("connecting to " + Count(options_.plan.nodes.size(), "node"));
  Carry(core_.Start(Clock::now()));
  // The job's keys are created while connections are being made, to save time.
  if (const Result<void> made = links_.MakeKeys(); !made.ok())
    Carry(core_.OnCannotStart(made.error(), Clock::now()));
  loop_.run();
  metrics_server_.reset();
  const int exit_code = Conclude();
  // If the job succeeded before the session could detach, its id is printed nevertheless.
  if (options_.job.detachable() && !detached_ && exit_code == 0)
    output_.Print(options_.job.job_id());
  signals_.clear();
  ExitOnStopSignals(exit_code);  // a slow terminal must not delay the exit
  output_.Drain(core_.end().output_is_dropped() ? kLastWordsLimit : kDrainTimeout);
  return exit_code;
}

std::function<void(const std::string&)> LaunchSession::Teller() {
  return [this, poster = links_.poster()](const std::string& text) {
    poster->Post([this, text] { Log(LogLevel::kInfo, text); });
  };
}

void LaunchSession::AwaitSignals() {
  signals_.async_wait([this](const asio::error_code& error, int signal_number) {
    if (error) return;
    Carry(core_.OnSignal(signal_number, Clock::now()));
    AwaitSignals();
  });
}

void LaunchSession::Carry(SessionCore::Actions actions) {
  for (SessionAction& action : actions) {
    if (std::holds_alternative<action::Run>(action)) SetPhase("starting the ranks");
    std::visit(
        [this](auto& one) {
          if constexpr (requires { links_.Do(one); })
            links_.Do(one);
          else
            Do(one);
        },
        action);
  }
}

void LaunchSession::OnEvent(size_t index, const pb::NodeEvent& event) {
  if (metrics_) metrics_->OnEvent(index, event, Clock::now());
  if (event.has_status()) {
    evaluation_.OnStatus(event.status());
    progress_.OnStatus(event.status());
    if (ShouldPrint(LogLevel::kInfo)) output_.Progress(event.status());
    return;
  }
  if (event.has_running()) {
    progress_.OnRunning(core_.job_state().world_size());
    SetPhase(Count(static_cast<size_t>(core_.job_state().world_size()), "rank") + " running");
  }
  if (event.has_restarting()) SetPhase("restarting the ranks");
  stdin_.OnEvent(index, event);
  events_.Record(core_.nodes().names(), index, event);
  Carry(core_.OnEvent(index, event, Clock::now()));
}

void LaunchSession::Do(const action::Record& record) {
  const std::string& name = core_.nodes().names()[record.node];
  switch (record.kind) {
    case action::Record::Kind::kConnected:
      return events_.Connected(name, record.text);
    case action::Record::Kind::kFailed:
      return events_.Failed(name, record.text);
    case action::Record::Kind::kLost:
      return events_.Lost(name, record.text);
    case action::Record::Kind::kInterrupted:
      return events_.Interrupted(record.text);
  }
}

void LaunchSession::Do(const action::SetTimer& set) {
  asio::steady_timer& timer = timers_.try_emplace(set.timer, loop_).first->second;
  timer.expires_at(set.when);
  timer.async_wait([this, which = set.timer](const asio::error_code& error) {
    if (!error) Carry(core_.OnTimer(which, output_.ReaderStalledFor(), Clock::now()));
  });
}

}  // namespace dslaunch
