// The connections between the PMIx servers of a job's nodes. Each other server dials that of node
// rank 0, by its agent, as a rank would (proto/contract/rank_link.h).
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

// On the loop's thread.
class PeerLinks {
 public:
  struct Handlers {
    // Once: this server can send to those that it needs. kUnavailable: why it cannot.
    std::function<void(Result<void>)> on_ready;
    std::function<void(uint32_t node_rank, pb::PmixMessage message)> on_message;
    std::function<void(uint32_t node_rank)> on_gone;  // nothing comes from there any more
  };

  PeerLinks(asio::io_context& loop, const pb::PmixJob& job, Handlers handlers);

  // Connects to the agent. Blocks, but not for long. The rest is in the handlers.
  void Open();
  // Kept until that node has connected; void once it is gone.
  void Send(uint32_t node_rank, const pb::PmixMessage& message);
  // What came from it cannot be believed.
  void Drop(uint32_t node_rank);

 private:
  struct Peer {
    std::unique_ptr<FramedSocket> socket;
    std::vector<pb::PmixMessage> unsent;  // before it has connected
    bool is_gone = false;
  };

  void Say(RankLinkMessage message);
  void ReadAgent();
  void OnAgentMessage(const RankLinkMessage& message, UniqueFd fd);
  void Fail(const std::string& why);
  void AddPeer(uint32_t node_rank, UniqueFd fd);
  void OnPeerEnd(uint32_t node_rank);

  asio::io_context& loop_;
  const pb::PmixJob& job_;
  Handlers handlers_;
  asio::local::stream_protocol::socket agent_;
  std::string partial_;  // of a message of the agent's
  UniqueFd partial_fd_;  // that came with it
  bool is_ready_ = false;
  std::map<uint32_t, Peer> peers_;  // by node_rank
};

}  // namespace dslaunch
