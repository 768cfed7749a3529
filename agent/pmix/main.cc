// dslaunch-pmix: the PMIx server of a node's MPI ranks, in a process of its own because OpenPMIx's
// library is shared and the agent is static. Started by the agent, with a connection to it as
// stdin; ends with that connection.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "agent/pmix/exchange.h"
#include "agent/pmix/peer_links.h"
#include "agent/pmix/pmix_library.h"
#include "base/exit_code.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {
namespace {

class PmixServer {
 public:
  PmixServer(asio::io_context& loop, UniqueFd agent)
      : loop_(loop),
        agent_(
            loop, std::move(agent), [this](std::string_view bytes) { OnJob(bytes); },
            [this](const std::string&) { End(); }) {}

 private:
  // OpenPMIx's orderly end would wait for ranks that are gone. The agent, which removes the folder
  // too, may have been killed.
  [[noreturn]] void End() {
    std::error_code ignored;
    if (!job_.folder().empty()) std::filesystem::remove_all(job_.folder(), ignored);
    _exit(ToInt(ExitCode::kOk));
  }

  void OnJob(std::string_view bytes) {
    if (exchange_ || !job_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      _exit(ToInt(ExitCode::kInternal));
    if (const Result<void> checked = CheckPmixJob(job_); !checked.ok())
      return SayFailure(checked.error().message);
    exchange_ = std::make_unique<PmixExchange>(job_);
    Result<pb::PmixClients> clients = StartPmixLibrary(
        job_, {.on_fence =
                   [this](uint64_t id, std::vector<uint32_t> ranks, std::string data) {
                     asio::post(loop_, [this, id, ranks = std::move(ranks),
                                        data = std::move(data)]() mutable {
                       CarryOut(exchange_->OnLocalFence(id, std::move(ranks), std::move(data)));
                     });
                   },
               .on_request =
                   [this](uint64_t id, uint32_t rank) {
                     asio::post(loop_, [this, id, rank] {
                       CarryOut(exchange_->OnLocalRequest(id, rank));
                     });
                   },
               .on_abort =
                   [this](uint32_t rank, int status) {
                     asio::post(loop_, [this, rank, status] {
                       pb::PmixReport report;
                       report.mutable_aborted()->set_rank(rank);
                       report.mutable_aborted()->set_code(status);
                       agent_.Send(report);
                     });
                   },
               .on_reply =
                   [this](pb::ModexReply reply) {
                     asio::post(loop_, [this, reply = std::move(reply)]() mutable {
                       CarryOut(exchange_->OnLocalReply(std::move(reply)));
                     });
                   }});
    if (!clients.ok()) return SayFailure(clients.error().message);
    *start_.mutable_clients() = *std::move(clients);
    if (job_.nodes_size() == 1) {
      agent_.Send(start_);
      return;
    }
    links_ = std::make_unique<PeerLinks>(
        loop_, job_,
        PeerLinks::Handlers{
            .on_ready =
                [this](const Result<void>& ready) {
                  if (!ready.ok()) return SayFailure(ready.error().message);
                  agent_.Send(start_);
                },
            .on_message =
                [this](uint32_t node_rank, pb::PmixMessage message) {
                  OnMessage(node_rank, std::move(message));
                },
            .on_gone = [this](uint32_t node_rank) { CarryOut(exchange_->OnNodeGone(node_rank)); }});
    links_->Open();
  }

  void OnMessage(uint32_t node_rank, pb::PmixMessage message) {
    Result<PmixActions> actions = exchange_->OnMessage(node_rank, std::move(message));
    if (!actions.ok()) {
      std::fprintf(stderr, "dslaunch-pmix: %s\n", actions.error().message.c_str());
      return links_->Drop(node_rank);
    }
    CarryOut(*std::move(actions));
  }

  void CarryOut(PmixActions actions) {
    for (PmixAction& action : actions) std::visit([this](auto& one) { Do(one); }, action);
  }
  void Do(pmix_action::Send& action) { links_->Send(action.node_rank, action.message); }
  void Do(pmix_action::EndFence& action) {
    EndPmixTicket(action.id, std::move(action.data), action.failure);
  }
  void Do(pmix_action::EndRequest& action) {
    EndPmixTicket(action.id, std::move(action.data), action.failure);
  }
  void Do(pmix_action::AskLibrary& action) { AskPmixLibrary(action.request); }

  void SayFailure(const std::string& why) {
    pb::PmixReport failed;
    failed.set_failure(why);
    agent_.Send(failed);
  }

  asio::io_context& loop_;
  pb::PmixJob job_;
  pb::PmixReport start_;
  std::unique_ptr<PmixExchange> exchange_;
  std::unique_ptr<PeerLinks> links_;  // null: one node
  FramedSocket agent_;
};

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("dslaunch-pmix %s\n", DSLAUNCH_VERSION);
    return 0;
  }
  prctl(PR_SET_NAME, "dslaunch-pmix");  // it may have been started from memory, without a name
  // A graceful kill reaches the ranks, which may use this process until they have ended.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  const int agent = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  asio::io_context loop(1);
  const dslaunch::PmixServer server(loop, dslaunch::UniqueFd(agent));
  loop.run();
  return dslaunch::ToInt(dslaunch::ExitCode::kInternal);
}
