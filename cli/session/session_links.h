// Manages the connections of a session to its nodes.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/session_core.h"
#include "cli/core/session_options.h"
#include "cli/session/node_client.h"
#include "cli/session/node_connector.h"
#include "cli/stacks/stacks_text.h"
#include "cli/transport/transport.h"
#include "net/certificate_authority.h"
#include "net/loop_poster.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {

// Connects to nodes, calls them and waits for their ends. Threads that connect own the objects they
// use. Used on the loop's thread.
class SessionLinks {
 public:
  struct Handlers {
    // Carries out the actions that follow from the answer of a node.
    std::function<void(SessionCore::Actions)> carry;
    std::function<void(size_t node, const pb::NodeEvent& event)> event;
    std::function<void(size_t node, const pb::LogChunk& chunk, std::function<void()> go_on)> output;
    std::function<void(LogLevel level, const std::string& text)> log;
    std::function<void(const std::vector<NodeStacks>& nodes)> stacks;
  };

  // Begins without connections. `options` and `core` must outlive this object; the transport must
  // outlive its users.
  SessionLinks(asio::io_context& loop, const SessionOptions& options, SessionCore& core,
               std::shared_ptr<Transport> transport, Handlers handlers);
  // Ends the connections and drops pending handlers.
  ~SessionLinks();

  // Creates the keys of the job if the job has several nodes.
  Result<void> MakeKeys();
  // Sends input to rank 0 on a node; `end` ends the input after `data`. `then` gets whether the
  // node accepted the input.
  void Input(size_t node, const std::string& data, bool end, std::function<void(bool)> then);
  const std::shared_ptr<LoopPoster>& poster() const { return poster_; }
  // Returns the description by the launcher's system of how it ended the job; empty if it did not
  // end the job. Precondition: the launcher has ended.
  std::string Cancellation() const;
  // Ends the connections to all nodes and waits until their supervisors have ended.
  void Close();
  // Ends the connections to all nodes without ending the job.
  void LeaveRunning();

  void Do(const action::Connect& connect);
  void Do(const action::StopConnecting&) { connector_.Stop(); }
  void Do(action::Prepare& prepare);
  void Do(action::Run& run);
  void Do(const action::Renew& renew);
  void Do(const action::Failover& failover);
  void Do(const action::Stop& stop) { clients_[stop.node]->Stop(stop.cause, stop.kill_now); }
  void Do(const action::Signal& signal) { clients_[signal.node]->Signal(signal.signal_number); }
  void Do(const action::ShowStacks& show);
  void Do(const action::Detach& detach);
  void Do(const action::Goodbye& goodbye) { clients_[goodbye.node]->SayGoodbye(); }
  void Do(const action::Abort& abort) { clients_[abort.node]->Abort(abort.why); }
  void Do(const action::AwaitEnd& await);
  void Do(const action::DropOutput&);

 private:
  void OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link);
  // Returns the limits of the messages that a node may send.
  PeerLimits LimitsOf(size_t index) const;
  // Copies files to the node, then prepares the node.
  void CopyAndPrepare(size_t index, pb::PrepareRequest request,
                      std::function<void(const Result<pb::PreparedNode>&)> answer);
  Result<pb::PrepareRequest> WithCredentials(size_t index, pb::PrepareRequest request);
  // Returns whether `client` is the newest connection of the node. A handler may belong to an older
  // connection.
  bool IsNewest(size_t index, const NodeClient* client) const {
    return clients_[index].get() == client;
  }

  asio::io_context& loop_;
  const SessionOptions& options_;
  SessionCore& core_;
  const Handlers handlers_;
  const std::shared_ptr<LoopPoster> poster_;
  NodeConnector connector_;
  std::optional<CertificateAuthority> authority_;
  // The newest client of each node; null before the first connection.
  std::vector<std::unique_ptr<NodeClient>> clients_;
  // Earlier clients of nodes that were reached again.
  std::vector<std::unique_ptr<NodeClient>> past_clients_;
  bool notice_logged_ = false;  // whether NodeLink::Notice was logged
};

}  // namespace dslaunch
