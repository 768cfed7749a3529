// A node's command that has connected to node 0's: its request, its wait, and the stream to its
// agent.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "base/mutex.h"
#include "cli/per_node/per_node_stream.h"
#include "net/token_tls.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {

// One accepted connection. On the loop's thread, except where noted.
class Peer : public std::enable_shared_from_this<Peer> {
 public:
  struct Handlers {
    std::function<void(const pb::AdmissionRequest&)> asks;  // once, first
    std::function<void(const std::string& why)> strange;    // not a node's command; no `asks` then
    std::function<void()> gone;                             // after `asks`
  };

  // `fd` is the connected TCP socket. With `tls`, which outlives it, the other end must prove that
  // it knows the token.
  Peer(asio::io_context& loop, UniqueFd fd, TokenTls* tls);

  // Its request must arrive within `limit`.
  void Start(milliseconds limit, Handlers handlers);

  void Send(const pb::NodeMessage& message);
  void Refuse(const Error& error);
  // Ends the connection; no handler is called afterwards.
  void Drop();

  // Numeric addresses of the connection: the other end's, and this end's.
  const std::string& address() const { return address_; }
  const std::string& own_address() const { return own_address_; }

  // --- From other threads ---

  // Asks it to start its agent; the stream to it. Blocks until the deadline at most. Again only
  // after the last agent has ended. Errors are the node's own, or kUnavailable.
  Result<UniqueFd> StartAgent(const pb::AdmissionAccepted& accepted, Deadline deadline);
  // Ends the stream at once.
  void AbortStream();
  // Returns false if the deadline passed first.
  bool WaitAgentEnd(Deadline deadline) const;
  // The last output of its supervisor, for error messages.
  std::string words() const;
  // AdmissionRequest.public_key.
  std::string public_key() const;
  // Waits until it has closed its end, as it does once it has received everything.
  bool WaitGone(Deadline deadline) const;

 private:
  enum class Stage { kAsking, kWaiting, kStarting, kUp, kGone };

  void Open(UniqueFd fd);
  void OnMessage(std::string_view bytes);
  void OnRequest(const pb::AdmissionRequest& request);
  void OnClosed(const std::string& why);
  void Strange(const std::string& why);
  void OpenStream(const std::shared_ptr<UniqueFd>& local);
  void EndStream();
  Stage stage() const;
  void SetStage(Stage stage);

  asio::io_context& loop_;
  TokenTls* const tls_;
  UniqueFd tcp_;            // socket until Start takes it
  uint64_t handshake_ = 0;  // number of TokenTls
  std::string address_;
  std::string own_address_;
  std::unique_ptr<FramedSocket> socket_;  // set once the node is authenticated
  asio::steady_timer limit_;
  Handlers handlers_;
  std::shared_ptr<CarriedStream> stream_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  Stage stage_ DSL_GUARDED_BY(mutex_) = Stage::kAsking;
  std::optional<Error> failure_ DSL_GUARDED_BY(mutex_);  // failure of the agent's start
  std::string words_ DSL_GUARDED_BY(mutex_);
  std::string public_key_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
