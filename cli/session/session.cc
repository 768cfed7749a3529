#include "cli/session/session.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "base/count.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/text/size_text.h"
#include "cli/session/call_times.h"
#include "cli/session/handled_signals.h"
#include "cli/session/job_record.h"

namespace dslaunch {
namespace {

// For a reader that has taken nothing for long.
constexpr milliseconds kLastWordsLimit(1'000);

}  // namespace

LaunchSession::LaunchSession(SessionOptions options, std::shared_ptr<Transport> transport,
                             Terminal& terminal)
    : options_(std::move(options)),
      poster_(std::make_shared<LoopPoster>(loop_)),
      core_(options_, started_at_),
      connector_(loop_, poster_, std::move(transport), options_.connect_timeout,
                 options_.retry_wait),
      output_(loop_, terminal, options_.tags),
      progress_(options_.job_folder, !options_.job.ranks().log_dir().empty()),
      events_(options_.job_folder, !options_.job.ranks().log_dir().empty(),
              [this](const std::string& text) { Log(LogLevel::kWarning, text); }),
      signals_(loop_),
      clients_(options_.plan.nodes.size()) {}

LaunchSession::~LaunchSession() {
  poster_->Close();
  timers_.clear();
  connector_.Stop();
  signals_.cancel();
  // What was still to be handled is dropped here, while that which it holds is there.
  loop_.restart();
  loop_.poll();
}

void LaunchSession::OpenLog() {
  if (options_.job_folder.empty()) return;
  const Result<UniqueFd> folder = OpenFrontEndFolder(
      options_.job_folder, !options_.job.ranks().log_dir().empty(), IfMissing::kMake);
  if (!folder.ok()) return Log(LogLevel::kWarning, "no log is kept: " + folder.error().message);
  const Result<void> opened = log_.Open(options_.job_folder + "/" + kFrontEndLogName);
  if (!opened.ok()) Log(LogLevel::kWarning, opened.error().message);
}

int LaunchSession::Run() {
  for (const int signal_number : HandledSignals()) signals_.add(signal_number);
  AwaitSignals();
  OpenLog();
  ForwardStdin();
  events_.Planned(options_.job.job_id(), options_.plan, options_.job.ranks().program());
  // A rank may write before its node has reported the start.
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
  // While the network is busy there is time for the job's keys.
  if (clients_.size() > 1) {
    Result<CertificateAuthority> created = CertificateAuthority::Create(options_.job.job_id());
    if (created.ok())
      authority_.emplace(*std::move(created));
    else
      Carry(core_.OnCannotStart(created.error()));
  }
  loop_.run();
  const int exit_code = Conclude();
  // The job succeeded before the session could detach: its id is printed all the same.
  if (options_.job.detachable() && !detached_ && exit_code == 0)
    output_.Print(options_.job.job_id());
  signals_.clear();
  ExitOnStopSignals(exit_code);  // instead of waiting for a slow terminal
  output_.Drain(core_.output_is_dropped() ? kLastWordsLimit : kDrainTimeout);
  return exit_code;
}

std::function<void(const std::string&)> LaunchSession::Teller() {
  return [this, poster = poster_](const std::string& text) {
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
    std::visit([this](auto& one) { Do(one); }, action);
  }
}

// --- Nodes ---

void LaunchSession::Do(const action::Connect& connect) {
  connector_.Connect(connect.node, options_.plan.nodes[connect.node], connect.attempt,
                     [this, index = connect.node](Result<std::unique_ptr<NodeLink>> link) {
                       OnConnected(index, std::move(link));
                     });
}

void LaunchSession::OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link) {
  if (!link.ok()) return Carry(core_.OnConnected(index, link.error(), Clock::now()));
  const NodeAddresses addresses = {(*link)->Address(), (*link)->OwnAddress()};
  // Likely the same for many nodes: once.
  const std::string notice = (*link)->Notice();
  if (!notice.empty() && !std::exchange(way_noticed_, true) && ShouldPrint(LogLevel::kInfo))
    Log(LogLevel::kInfo, notice);
  std::unique_ptr<NodeClient>& client = clients_[index];
  if (client) past_clients_.push_back(std::move(client));
  client = std::make_unique<NodeClient>(loop_, poster_, NameOf(index), *std::move(link),
                                        LinkSilentAfter(options_.job.timeouts()));
  Carry(core_.OnConnected(index, addresses, Clock::now()));
}

Result<pb::PrepareRequest> LaunchSession::WithCredentials(size_t index,
                                                          pb::PrepareRequest request) {
  if (authority_) {
    const std::string public_key = clients_[index]->link().PublicKey();
    DSL_TRY_ASSIGN(*request.mutable_credentials(),
                   public_key.empty() ? authority_->Issue(request.node_index())
                                      : authority_->IssueFor(request.node_index(), public_key));
  }
  return request;
}

void LaunchSession::Do(action::Prepare& prepare) {
  const auto answer = [this, index = prepare.node, client = clients_[prepare.node].get()](
                          const Result<pb::PreparedNode>& info) {
    if (IsNewest(index, client)) Carry(core_.OnPrepared(index, info, Clock::now()));
  };
  Result<pb::PrepareRequest> request = WithCredentials(prepare.node, std::move(prepare.request));
  if (!request.ok()) return poster_->Post([answer, error = request.error()] { answer(error); });
  if (!options_.copy_list) return clients_[prepare.node]->Prepare(*std::move(request), answer);
  CopyAndPrepare(prepare.node, *std::move(request), answer);
}

void LaunchSession::CopyAndPrepare(size_t index, pb::PrepareRequest request,
                                   std::function<void(const Result<pb::PreparedNode>&)> answer) {
  NodeClient* const client = clients_[index].get();
  client->Copy(options_.copy_list, [this, index, client, request = std::move(request),
                                    answer = std::move(answer),
                                    began = Clock::now()](Result<pb::CopyDone> done) mutable {
    if (!IsNewest(index, client)) return;
    if (!done.ok()) return answer(done.error());
    const uint64_t bytes = done->received_bytes();
    Log(LogLevel::kDebug, NameOf(index) +
                              (bytes == 0 ? ": all files were there already"
                                          : ": " + SizeText(bytes) + " were copied in " +
                                                WholeSeconds(Clock::now() - began)) +
                              ", in " + SanitizeForTerminal(done->folder()));
    client->Prepare(std::move(request), std::move(answer));
  });
}

void LaunchSession::Do(action::Run& run) {
  const size_t index = run.node;
  NodeClient* const client = clients_[index].get();
  SetPhase("starting the ranks");
  EventReader::Handlers handlers;
  handlers.event = [this, index](const pb::NodeEvent& event) { OnEvent(index, event); };
  handlers.log = [this, index](const pb::LogChunk& chunk, std::function<void()> go_on) {
    output_.Log(NameOf(index), chunk, std::move(go_on));
  };
  handlers.ended = [this, index, client] {
    if (IsNewest(index, client)) Carry(core_.OnStreamEnd(index, Clock::now()));
  };
  handlers.broke_rules = [this, index, client](const std::string& what) {
    if (IsNewest(index, client)) Carry(core_.OnBrokenRules(index, what, Clock::now()));
  };
  handlers.listening = [this, index, client] {
    if (IsNewest(index, client)) core_.OnListening(index, Clock::now());
  };
  handlers.holding = [this, index, client] {
    if (IsNewest(index, client)) core_.OnHolding(index);
  };
  client->Run(std::move(run.request), std::move(handlers), LimitsOf(index));
}

PeerLimits LaunchSession::LimitsOf(size_t index) const {
  const LaunchPlan& plan = options_.plan;
  PeerLimits limits;
  limits.nodes = static_cast<uint32_t>(plan.nodes.size());
  limits.ranks = core_.job_state().most_ranks();
  limits.slots = static_cast<uint32_t>(plan.nodes[index].slots);
  if (!core_.job_state().restartable()) limits.attempts = 1;
  return limits;
}

void LaunchSession::ForwardStdin() {
  if (!options_.job.rank_stdin().from_front_end()) {
    if (!options_.stdin_notice.empty())
      unread_stdin_.emplace(loop_, STDIN_FILENO, [this] { ShowStdinNotice(); });
    return;
  }
  if (::isatty(STDIN_FILENO) == 1) output_.SetReadsInput();
  stdin_.emplace(
      loop_, STDIN_FILENO,
      [this](const std::string& data, bool end, std::function<void(bool)> then) {
        if (!data.empty()) ShowStdinNotice();
        clients_[stdin_node_]->Input(data, end, std::move(then));
      },
      [this] { output_.OnEnter(); });
}

void LaunchSession::ShowStdinNotice() {
  if (!options_.stdin_notice.empty() && !std::exchange(stdin_noticed_, true))
    Log(LogLevel::kInfo, options_.stdin_notice);
}

void LaunchSession::FollowRank0(size_t index, const pb::NodeEvent& event) {
  if (!stdin_) return;
  if (event.has_started() && event.started().first_rank() == 0 && event.started().pids_size() > 0) {
    stdin_node_ = index;
    stdin_->Start();
  } else if (event.has_restarting() ||
             (event.has_worker_ended() && event.worker_ended().rank() == 0)) {
    stdin_->Stop();
  }
}

void LaunchSession::OnEvent(size_t index, const pb::NodeEvent& event) {
  if (event.has_status()) {
    core_.OnStatus(event.status());
    progress_.OnStatus(event.status());
    if (ShouldPrint(LogLevel::kInfo)) output_.Progress(event.status());
    return;
  }
  if (event.has_running()) {
    progress_.OnRunning(core_.job_state().world_size());
    SetPhase(Count(static_cast<size_t>(core_.job_state().world_size()), "rank") + " running");
  }
  if (event.has_restarting()) SetPhase("restarting the ranks");
  FollowRank0(index, event);
  events_.Record(core_.names(), index, event);
  Carry(core_.OnEvent(index, event, Clock::now()));
}

void LaunchSession::Do(const action::Renew& renew) {
  clients_[renew.node]->Renew(renew.last_seen_us, renew.timeout,
                              [this, index = renew.node, client = clients_[renew.node].get()](
                                  std::optional<uint64_t> clock_us) {
                                if (IsNewest(index, client))
                                  Carry(core_.OnRenewed(index, clock_us, Clock::now()));
                              });
}

void LaunchSession::Do(const action::Failover& failover) {
  clients_[failover.node]->Failover(
      failover.request,
      [this, index = failover.node, host = size_t{failover.request.rendezvous_node()}](
          const Result<pb::RendezvousOpened>& opened) {
        Carry(core_.OnFailoverAnswered(index, host, opened));
      });
}

void LaunchSession::Do(const action::Detach& detach) {
  clients_[detach.node]->Detach(
      [this](const Result<void>& result) { Carry(core_.OnDetached(result, Clock::now())); });
}

void LaunchSession::Do(const action::AwaitEnd& await) {
  NodeClient* const client = clients_[await.node].get();
  client->AwaitEnd(
      Deadline::After(await.limit), [this, index = await.node, client](bool supervisor_ended) {
        if (!IsNewest(index, client)) return;
        Carry(core_.OnLinkEnded(index, supervisor_ended, client->LastOutput(), Clock::now()));
      });
}

void LaunchSession::Do(const action::Record& record) {
  const std::string& name = NameOf(record.node);
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

// --- Time ---

void LaunchSession::Do(const action::SetTimer& set) {
  asio::steady_timer& timer = timers_.try_emplace(set.timer, loop_).first->second;
  timer.expires_at(set.when);
  timer.async_wait([this, which = set.timer](const asio::error_code& error) {
    if (error) return;
    if (which == SessionTimer::kWatch) Carry(core_.OnReader(output_.ReaderStalledFor()));
    Carry(OnTimer(which, Clock::now()));
  });
}

void LaunchSession::Do(const action::DropOutput&) {
  for (const auto& client : clients_) {
    if (client) client->DropOutput();
  }
}

SessionCore::Actions LaunchSession::OnTimer(SessionTimer timer, Clock::time_point now) {
  switch (timer) {
    case SessionTimer::kConnect:
      return core_.OnConnectTimer();
    case SessionTimer::kRenew:
      return core_.OnRenewTimer(now);
    case SessionTimer::kWatch:
      return core_.OnWatchTimer(now);
    case SessionTimer::kTeardown:
      return core_.OnTeardownTimer(output_.ReaderStalledFor(), now);
  }
  return {};
}

}  // namespace dslaunch
