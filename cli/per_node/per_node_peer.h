// Implements node 0's connection to the command of another node: its request, its wait, and the
// stream to its agent.
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

// An accepted connection. Used on the loop's thread, except the methods under "Methods for other
// threads".
class Peer : public std::enable_shared_from_this<Peer> {
 public:
  struct Handlers {
    // Receives the request of the node's command. Called once, before the other handlers.
    std::function<void(const pb::AdmissionRequest&)> asks;
    // Receives the reason if the other end is not a node's command. In that case `asks` is never
    // called.
    std::function<void(const std::string& why)> strange;
    std::function<void()> gone;  // called when the connection has ended, but only after `asks`
  };

  // Takes over an accepted connection. `fd` is the connected TCP socket. If `tls` is not null, the
  // other end must prove that it has the job's token. `tls` must outlive the peer.
  Peer(asio::io_context& loop, UniqueFd fd, TokenTls* tls);

  // Starts to read. The request of the node's command must arrive within `limit`.
  void Start(milliseconds limit, Handlers handlers);

  void Send(const pb::NodeMessage& message);

  // Refuses the node's request, with the reason for its user.
  void Refuse(const Error& error);
  // Ends the connection; no handler is called afterwards.
  void Drop();

  // Returns the node's numeric address on this connection.
  const std::string& address() const { return address_; }

  // Returns this machine's numeric address on this connection.
  const std::string& own_address() const { return own_address_; }

  // --- Methods for other threads ---

  // Makes the node's command start its agent, and returns a stream to the agent. Blocks until the
  // deadline at most. Call it again only after the last agent has ended. Errors are those of the
  // node, kUnavailable, or kTimedOut at the deadline.
  Result<UniqueFd> StartAgent(const pb::AdmissionAccepted& accepted, Deadline deadline);
  // Ends the stream to the agent at once.
  void AbortStream();
  // Waits until the agent has ended. Returns false if the deadline passes first.
  bool WaitAgentEnd(Deadline deadline) const;
  // Returns the last output of the agent's supervisor, for error messages.
  std::string words() const;
  // Returns the public key in the node's request (AdmissionRequest.public_key).
  std::string public_key() const;
  // Waits until the command has closed its end of the connection, which happens once it has
  // received all messages. Returns false if the deadline passes first.
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
  UniqueFd tcp_;            // connected socket; empty once Start has moved it
  uint64_t handshake_ = 0;  // number of the handshake in TokenTls
  std::string address_;
  std::string own_address_;
  // Connection to the node; null until the node is authenticated.
  std::unique_ptr<FramedSocket> socket_;
  asio::steady_timer limit_;
  Handlers handlers_;
  std::shared_ptr<CarriedStream> stream_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  Stage stage_ DSL_GUARDED_BY(mutex_) = Stage::kAsking;
  std::optional<Error> failure_ DSL_GUARDED_BY(mutex_);  // error of the agent's start
  std::string words_ DSL_GUARDED_BY(mutex_);
  std::string public_key_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
