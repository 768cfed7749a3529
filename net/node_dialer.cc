#include "net/node_dialer.h"

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/os/socket_pair.h"
#include "net/connect_attempt.h"
#include "net/tls_relay.h"

namespace dslaunch {

class NodeDialer::Loop {
 public:
  Loop(std::string job_id, asio::ssl::context tls)
      : job_id_(std::move(job_id)), tls_(std::move(tls)) {}

  ~Loop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void Dial(std::vector<std::string> endpoints, uint32_t node_index, milliseconds limit,
            OnDone on_done) {
    std::call_once(starts_, [this] { thread_ = std::thread([this] { context_.run(); }); });
    asio::post(context_, [this, endpoints = std::move(endpoints), node_index, limit,
                          on_done = std::move(on_done)]() mutable {
      const auto call = std::make_shared<Call>(*this, endpoints, node_index, std::move(on_done));
      calls_.emplace(call.get(), call);
      call->limit.expires_after(limit);
      call->limit.async_wait([this, key = call.get()](std::error_code cancelled) {
        if (!cancelled) OnLate(key);
      });
      call->search.Start();
    });
  }

 private:
  struct Call {
    Call(Loop& loop, const std::vector<std::string>& endpoints, uint32_t node_index, OnDone done)
        : search(
              loop.context_, loop.tls_, endpoints,
              [&loop, node_index](TlsStream& stream) {
                return PeerNode(stream, loop.job_id_) == node_index;
              },
              [&loop, this](std::shared_ptr<TlsStream> stream, const std::string&) {
                loop.OnFound(this, std::move(stream));
              }),
          limit(loop.context_),
          on_done(std::move(done)) {}

    ConnectSearch search;
    asio::steady_timer limit;
    OnDone on_done;
  };

  // Removes a finished call and returns it; nullptr if it was removed before. The call's attempts
  // may still be on the stack, so a posted callback keeps the call alive until they have returned.
  std::shared_ptr<Call> Remove(Call* key) {
    const auto found = calls_.find(key);
    if (found == calls_.end()) return nullptr;
    std::shared_ptr<Call> call = std::move(found->second);
    calls_.erase(found);
    call->limit.cancel();
    call->search.Stop();
    asio::post(context_, [call] {});
    return call;
  }

  void OnFound(Call* key, std::shared_ptr<TlsStream> stream) {
    const std::shared_ptr<Call> call = Remove(key);
    if (!call) return;  // the call has already connected to another endpoint
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair.ok()) return call->on_done(pair.error());
    std::make_shared<TlsRelay>(std::move(stream), std::move(pair->ours), nullptr)->Start();
    call->on_done(std::move(pair->theirs));
  }

  void OnLate(Call* key) {
    const std::shared_ptr<Call> call = Remove(key);
    if (!call) return;
    call->on_done(
        Error{ExitCode::kTimedOut, "no connection to its node at " + call->search.Describe() +
                                       "; check that a firewall lets the nodes reach each other"});
  }

  const std::string job_id_;
  asio::ssl::context tls_;
  asio::io_context context_{1};
  const asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  std::map<Call*, std::shared_ptr<Call>> calls_;  // pending calls; used on the dialer's thread only
  std::once_flag starts_;
  // Started by the first call. Declared last, because the thread uses the other members.
  std::thread thread_;
};

NodeDialer::NodeDialer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
NodeDialer::~NodeDialer() = default;

Result<std::unique_ptr<NodeDialer>> NodeDialer::Start(const std::string& job_id,
                                                      const pb::Credentials& credentials) {
  DSL_TRY_ASSIGN(asio::ssl::context tls, MakeTlsContext(credentials));
  return std::unique_ptr<NodeDialer>(
      new NodeDialer(std::make_unique<Loop>(job_id, std::move(tls))));
}

void NodeDialer::Dial(std::vector<std::string> endpoints, uint32_t node_index, milliseconds limit,
                      OnDone on_done) {
  loop_->Dial(std::move(endpoints), node_index, limit, std::move(on_done));
}

}  // namespace dslaunch
