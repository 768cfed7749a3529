#include "agent/pmix/peer_links.h"

#include <algorithm>
#include <array>
#include <asio/post.hpp>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/errno_text.h"
#include "base/os/pass_fd.h"

namespace dslaunch {

PeerLinks::PeerLinks(asio::io_context& loop, const pb::PmixJob& job, Handlers handlers)
    : loop_(loop), job_(job), handlers_(std::move(handlers)), agent_(loop) {}

void PeerLinks::Open() {
  std::error_code error;
  if (job_.rank_socket().size() >= sizeof(sockaddr_un::sun_path))
    error = std::make_error_code(std::errc::filename_too_long);
  if (!error) agent_.connect(asio::local::stream_protocol::endpoint(job_.rank_socket()), error);
  if (error) return Fail("connect to the agent: " + error.message());
  agent_.native_non_blocking(true, error);
  RankLinkMessage hello;
  hello.kind = RankLinkMessage::Kind::kHello;
  hello.from = job_.nodes(static_cast<int>(job_.node_rank())).first_rank();
  hello.attempt = job_.attempt();
  hello.label = kPmixLinkLabel;
  SendToAgent(std::move(hello));
  if (job_.node_rank() != 0) {
    RankLinkMessage dial;
    dial.kind = RankLinkMessage::Kind::kDial;
    dial.to = 0;
    dial.label = kPmixLinkLabel;
    SendToAgent(std::move(dial));
  }
  ReadAgent();
}

// Sends a message without waiting. At most two messages are sent, which fit into the socket's
// buffer.
void PeerLinks::SendToAgent(RankLinkMessage message) {
  if (!SendWithFd(agent_.native_handle(), EncodeRankLink(message), -1))
    Fail("the agent is gone: " + ErrnoText(errno));
}

void PeerLinks::ReadAgent() {
  agent_.async_wait(agent_.wait_read, [this](std::error_code error) {
    std::array<char, kRankLinkMessageBytes> bytes;
    while (!error) {
      // A descriptor belongs to the message with which it arrived, so no bytes after this message
      // are read.
      const long got = ReceiveWithFd(agent_.native_handle(), bytes.data(),
                                     kRankLinkMessageBytes - partial_.size(), partial_fd_);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return ReadAgent();
      if (got <= 0) break;
      partial_.append(bytes.data(), static_cast<size_t>(got));
      if (partial_.size() < kRankLinkMessageBytes) continue;
      const Result<RankLinkMessage> message = DecodeRankLink(std::exchange(partial_, {}));
      if (!message.ok()) break;
      OnAgentMessage(*message, std::exchange(partial_fd_, UniqueFd()));
    }
    Fail("its agent closed the connection");
  });
}

void PeerLinks::OnAgentMessage(const RankLinkMessage& message, UniqueFd fd) {
  switch (message.kind) {
    case RankLinkMessage::Kind::kWelcome:
      if (job_.node_rank() == 0 && !std::exchange(is_ready_, true)) handlers_.on_ready({});
      return;
    case RankLinkMessage::Kind::kFailed:
      return Fail("connect to " + job_.nodes(0).name() + ": " + message.text);
    case RankLinkMessage::Kind::kLink: {
      if (job_.node_rank() != 0) {
        AddPeer(0, std::move(fd));
        if (!std::exchange(is_ready_, true)) handlers_.on_ready({});
        return;
      }
      const auto node = std::ranges::find(job_.nodes(), message.from, &pb::PmixNode::first_rank);
      if (node != job_.nodes().end() && node != job_.nodes().begin())
        AddPeer(static_cast<uint32_t>(node - job_.nodes().begin()), std::move(fd));
      return;
    }
    default:
      return;
  }
}

// Reports a failure, unless on_ready was called. After that, the agent is not needed any more,
// because the connections to other servers stay open.
void PeerLinks::Fail(const std::string& why) {
  if (!std::exchange(is_ready_, true)) handlers_.on_ready(Error{ExitCode::kUnavailable, why});
}

void PeerLinks::AddPeer(uint32_t node_rank, UniqueFd fd) {
  Peer& peer = peers_[node_rank];
  if (!fd || peer.socket || peer.is_gone) return;  // the node is connected already
  peer.socket = std::make_unique<FramedSocket>(
      loop_, std::move(fd),
      [this, node_rank](std::string_view bytes) {
        pb::PmixMessage message;
        if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
          return Drop(node_rank);
        handlers_.on_message(node_rank, std::move(message));
      },
      [this, node_rank](const std::string&) { OnPeerEnd(node_rank); });
  for (const pb::PmixMessage& message : std::exchange(peer.unsent, {})) peer.socket->Send(message);
}

void PeerLinks::Send(uint32_t node_rank, const pb::PmixMessage& message) {
  Peer& peer = peers_[node_rank];
  if (peer.is_gone) return;
  if (peer.socket)
    peer.socket->Send(message);
  else
    peer.unsent.push_back(message);
}

void PeerLinks::Drop(uint32_t node_rank) {
  std::fprintf(stderr, "dslaunch-pmix: %s sent an invalid message\n",
               job_.nodes(static_cast<int>(node_rank)).name().c_str());
  asio::post(loop_, [this, node_rank] { OnPeerEnd(node_rank); });
}

void PeerLinks::OnPeerEnd(uint32_t node_rank) {
  Peer& peer = peers_[node_rank];
  if (std::exchange(peer.is_gone, true)) return;
  peer.socket.reset();
  peer.unsent.clear();
  handlers_.on_gone(node_rank);
}

}  // namespace dslaunch
