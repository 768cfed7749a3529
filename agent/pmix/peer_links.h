// Connects the PMIx servers of a job's nodes. Each server connects to the server of node rank 0
// through its agent, as a rank connects to another rank (proto/contract/rank_link.h).
#pragma once

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "proto/contract/rank_link.h"
#include "proto/pmix.pb.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {

// The connections of one PMIx server to others. Used on the loop's thread.
class PeerLinks {
 public:
  struct Handlers {
    // Called once: with success when this server can send to the servers that it needs, otherwise
    // with kUnavailable and the reason.
    std::function<void(Result<void>)> on_ready;
    std::function<void(uint32_t node_rank, pb::PmixMessage message)> on_message;
    // Called when no more messages will arrive from that node.
    std::function<void(uint32_t node_rank)> on_gone;
  };

  PeerLinks(asio::io_context& loop, const pb::PmixJob& job, Handlers handlers);

  // Connects to the agent. Blocks briefly. Reports success or failure through on_ready.
  void Open();
  // Sends a message, or stores it until that node has connected. Does nothing after the node's end.
  void Send(uint32_t node_rank, const pb::PmixMessage& message);
  // Closes the connection to a node that sent an invalid message.
  void Drop(uint32_t node_rank);

 private:
  struct Peer {
    std::unique_ptr<FramedSocket> socket;
    std::vector<pb::PmixMessage> unsent;  // messages to send once the node has connected
    bool is_gone = false;
  };

  void SendToAgent(RankLinkMessage message);
  void ReadAgent();
  void OnAgentMessage(const RankLinkMessage& message, UniqueFd fd);
  void Fail(const std::string& why);
  void AddPeer(uint32_t node_rank, UniqueFd fd);
  void OnPeerEnd(uint32_t node_rank);

  asio::io_context& loop_;
  const pb::PmixJob& job_;
  Handlers handlers_;
  asio::local::stream_protocol::socket agent_;
  std::string partial_;  // incomplete message from the agent
  UniqueFd partial_fd_;  // descriptor that arrived with partial_
  bool is_ready_ = false;
  std::map<uint32_t, Peer> peers_;  // servers of other nodes, by node rank
};

}  // namespace dslaunch
