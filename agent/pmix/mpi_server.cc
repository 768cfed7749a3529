#include "agent/pmix/mpi_server.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "agent/pmix/exchange.h"
#include "agent/pmix/peer_links.h"
#include "agent/pmix/pmi_core.h"
#include "agent/pmix/pmi_sockets.h"
#include "base/deadline.h"
#include "base/exit_code.h"
#include "base/unique_fd.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {
namespace {

constexpr milliseconds kClosedDelay(1'000);

class MpiServer {
 public:
  MpiServer(asio::io_context& loop, UniqueFd agent, const PmixLibrary* library)
      : loop_(loop),
        library_(library),
        pmi_sockets_(loop, PmiCore::kMaxLineBytes,
                     {.on_line = [this](uint32_t local_rank,
                                        std::string_view line) { OnPmiLine(local_rank, line); },
                      .on_closed = [this](uint32_t local_rank) { OnPmiClosed(local_rank); }}),
        agent_(
            loop, std::move(agent), [this](std::string_view bytes) { OnAgentMessage(bytes); },
            [this](const std::string&) { End(); }) {}

 private:
  // Ends the process without OpenPMIx's orderly shutdown, which would wait for ranks that have
  // exited. Removes the folder, which usually the agent does, because the agent may have been
  // killed.
  [[noreturn]] void End() {
    std::error_code ignored;
    if (!job_.folder().empty()) std::filesystem::remove_all(job_.folder(), ignored);
    _exit(ToInt(ExitCode::kOk));
  }

  void OnAgentMessage(std::string_view bytes) {
    pb::PmixQuestion question;
    const int size = static_cast<int>(bytes.size());
    if (!(exchange_ ? question.ParseFromArray(bytes.data(), size)
                    : job_.ParseFromArray(bytes.data(), size)))
      _exit(ToInt(ExitCode::kInternal));
    if (!exchange_) return OnJob();
    SendState(question.local_rank(), /*is_answer=*/true);
  }

  void OnJob() {
    if (const Result<void> checked = CheckPmixJob(job_); !checked.ok())
      return ReportFailure(checked.error().message);
    exchange_ = std::make_unique<PmixExchange>(job_);
    states_.resize(OwnNode().ranks());
    if (library_ != nullptr) {
      if (const Result<void> started = StartLibrary(); !started.ok())
        return ReportFailure(started.error().message);
    }
    if (const Result<void> served = ServePmi(); !served.ok())
      return ReportFailure(served.error().message);
    if (job_.nodes_size() == 1) return SendStarted();
    links_ = std::make_unique<PeerLinks>(
        loop_, job_,
        PeerLinks::Handlers{
            .on_ready =
                [this](const Result<void>& ready) {
                  if (!ready.ok()) return ReportFailure(ready.error().message);
                  SendStarted();
                },
            .on_message =
                [this](uint32_t node_rank, pb::PmixMessage message) {
                  OnMessage(node_rank, std::move(message));
                },
            .on_gone = [this](uint32_t node_rank) { CarryOut(exchange_->OnNodeGone(node_rank)); }});
    links_->Open();
  }

  const pb::PmixNode& OwnNode() const { return job_.nodes(static_cast<int>(job_.node_rank())); }

  Result<void> StartLibrary() {
    return library_->start(
        job_,
        {.on_fence =
             [this](uint64_t id, std::vector<uint32_t> ranks, std::string data) {
               asio::post(
                   loop_, [this, id, ranks = std::move(ranks), data = std::move(data)]() mutable {
                     CarryOut(exchange_->OnLocalFence(id, std::move(ranks), std::move(data)));
                   });
             },
         .on_request =
             [this](uint64_t id, uint32_t rank) {
               asio::post(loop_,
                          [this, id, rank] { CarryOut(exchange_->OnLocalRequest(id, rank)); });
             },
         .on_rank =
             [this](uint32_t rank, bool has_finalized) {
               asio::post(loop_, [this, rank, has_finalized] {
                 SetState(rank - OwnNode().first_rank(),
                          has_finalized ? pb::PmixRank::FINALIZED : pb::PmixRank::JOINED);
               });
             },
         .on_abort =
             [this](uint32_t rank, int status) {
               asio::post(loop_,
                          [this, rank, status] { ReportAborted(rank, status, /*waits=*/false); });
             },
         .on_reply =
             [this](pb::ModexReply reply) {
               asio::post(loop_, [this, reply = std::move(reply)]() mutable {
                 CarryOut(exchange_->OnLocalReply(std::move(reply)));
               });
             }});
  }

  // Serves the connections for PMI-1. Ranks that use PMIx get such a connection too, but do not use
  // it.
  Result<void> ServePmi() {
    pmi_ = std::make_unique<PmiCore>(job_);
    for (uint32_t local_rank = 0; local_rank < pmi_->local_size(); ++local_rank) {
      const int index = static_cast<int>(local_rank);
      if (index >= job_.pmi_sockets_size()) break;
      const pb::PmiSocket& socket = job_.pmi_sockets(index);
      if (socket.fd() == 0)
        OnPmiClosed(local_rank);
      else
        DSL_TRY(pmi_sockets_.Add(local_rank, UniqueFd(static_cast<int>(socket.fd())),
                                 socket.is_connected()));
    }
    return {};
  }

  void OnPmiLine(uint32_t local_rank, std::string_view line) {
    Result<PmiActions> actions = pmi_->OnLine(local_rank, line);
    if (actions.ok()) {
      SetState(local_rank, std::max(pmi_->StateOf(local_rank), states_[local_rank]));
      return CarryOut(*std::move(actions));
    }
    std::fprintf(stderr, "%s: local rank %u: %s\n", program_invocation_short_name, local_rank,
                 actions.error().message.c_str());
    pmi_sockets_.Close(local_rank);
    CarryOut(pmi_->OnClosed(local_rank));
  }

  // The rank's agent must learn first that the rank has ended, so that it reports the end as the
  // first cause. Ranks that wait for this rank therefore get an error only after a delay.
  void OnPmiClosed(uint32_t local_rank) {
    const auto delay = std::make_shared<asio::steady_timer>(loop_, kClosedDelay);
    delay->async_wait(
        [this, local_rank, delay](std::error_code) { CarryOut(pmi_->OnClosed(local_rank)); });
  }

  void SetState(uint32_t local_rank, pb::PmixRank::State state) {
    if (local_rank >= states_.size() || states_[local_rank] == state) return;
    states_[local_rank] = state;
    SendState(local_rank, /*is_answer=*/false);
  }

  void SendState(uint32_t local_rank, bool is_answer) {
    if (local_rank >= states_.size()) return;
    pb::PmixReport report;
    report.mutable_rank()->set_local_rank(local_rank);
    report.mutable_rank()->set_state(states_[local_rank]);
    report.mutable_rank()->set_is_answer(is_answer);
    Report(report);
  }

  void OnMessage(uint32_t node_rank, pb::PmixMessage message) {
    Result<PmixActions> actions = exchange_->OnMessage(node_rank, std::move(message));
    if (!actions.ok()) {
      std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
                   actions.error().message.c_str());
      return links_->Drop(node_rank);
    }
    CarryOut(*std::move(actions));
  }

  void CarryOut(PmixActions actions) {
    for (PmixAction& action : actions) std::visit([this](auto& one) { Do(one); }, action);
  }
  void Do(pmix_action::Send& action) { links_->Send(action.node_rank, action.message); }
  void Do(pmix_action::EndFence& action) {
    if (action.id == kPmiFence) return CarryOut(pmi_->OnFenceEnd(action.data, action.failure));
    library_->end_ticket(action.id, std::move(action.data), action.failure);
  }
  void Do(pmix_action::EndRequest& action) {
    library_->end_ticket(action.id, std::move(action.data), action.failure);
  }
  void Do(pmix_action::AskLibrary& action) {
    if (library_ != nullptr) return library_->ask(action.request);
    pb::ModexReply reply = ReplyTo(action.request);
    reply.set_failure("the node has no OpenPMIx library");
    CarryOut(exchange_->OnLocalReply(std::move(reply)));
  }

  void CarryOut(PmiActions actions) {
    for (PmiAction& action : actions) std::visit([this](auto& one) { Do(one); }, action);
  }
  void Do(pmi_action::Reply& action) { pmi_sockets_.Send(action.local_rank, action.line); }
  void Do(pmi_action::Close& action) { pmi_sockets_.Close(action.local_rank); }
  void Do(pmi_action::Fence& action) {
    CarryOut(exchange_->OnLocalFence(kPmiFence, {}, std::move(action.data)));
  }
  void Do(pmi_action::Abort& action) { ReportAborted(action.rank, action.code, /*waits=*/true); }

  void ReportAborted(uint32_t rank, int code, bool waits) {
    pb::PmixReport report;
    report.mutable_aborted()->set_rank(rank);
    report.mutable_aborted()->set_code(code);
    report.mutable_aborted()->set_waits(waits);
    Report(report);
  }

  // Sends `started`, which must be the first report, and then the reports from before the start.
  void SendStarted() {
    pb::PmixReport started;
    started.set_started(true);
    agent_.Send(started);
    has_started_ = true;
    for (const pb::PmixReport& report : std::exchange(unsent_, {})) agent_.Send(report);
  }

  void Report(const pb::PmixReport& report) {
    if (has_started_)
      agent_.Send(report);
    else
      unsent_.push_back(report);
  }

  void ReportFailure(const std::string& why) {
    pb::PmixReport failed;
    failed.set_failure(why);
    agent_.Send(failed);
  }

  asio::io_context& loop_;
  const PmixLibrary* const library_;
  pb::PmixJob job_;
  bool has_started_ = false;
  std::vector<pb::PmixReport> unsent_;       // reports from before the start, to send after it
  std::vector<pb::PmixRank::State> states_;  // state of each rank, indexed by local rank
  std::unique_ptr<PmixExchange> exchange_;
  std::unique_ptr<PeerLinks> links_;  // nullptr before OnJob(), and if the job has one node
  std::unique_ptr<PmiCore> pmi_;
  PmiSockets pmi_sockets_;
  FramedSocket agent_;
};

}  // namespace

int RunMpiServer(const PmixLibrary* library, const char* process_name) {
  // The program may run from memory or as a mode of another program, so a readable process name is
  // set.
  prctl(PR_SET_NAME, process_name);
  // The ranks may use this process until they exit, so the signals of a graceful kill are ignored.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE})
    std::signal(signal, SIG_IGN);
  asio::io_context loop(1);
  const MpiServer server(loop, DuplicateFd(STDIN_FILENO), library);
  loop.run();
  return ToInt(ExitCode::kInternal);
}

}  // namespace dslaunch
