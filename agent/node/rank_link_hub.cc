#include "agent/node/rank_link_hub.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <sstream>
#include <utility>

#include "base/os/pass_fd.h"
#include "base/os/socket_pair.h"
#include "net/addresses.h"

namespace dslaunch {
namespace {

using LocalSocket = asio::local::stream_protocol::socket;

// Limits of the time for connecting to another node's agent, and for the first message on a
// connection.
constexpr milliseconds kConnectLimit(60'000);
constexpr milliseconds kFirstMessageLimit(10'000);
// Limit of the messages that a rank has not read; further messages end the rank's session.
constexpr size_t kMaxUnsent = 65'536;
// Limit of the connections from ranks of one other node: two for each pair of ranks and group of
// ranks.
constexpr size_t kMaxOfNode = 65'536;

std::string SocketNameOf(const pb::PrepareRequest& prepare) {
  return prepare.job().job_id() + "." + std::to_string(prepare.node_index()) + ".ranks.sock";
}

// Raises the limit of descriptors, because each connection to another node uses three descriptors
// until its rank receives it. The ranks are the supervisor's children, so they keep their own
// limit.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

// A process of this node that is connected to the Unix socket.
class RankLinkHub::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(RankLinkHub& hub, uint64_t id, UniqueFd connection)
      : hub_(&hub),
        id_(id),
        socket_(hub.loop_, asio::local::stream_protocol(), connection.Release()) {
    std::error_code ignored;  // ignored, because an open socket cannot fail here
    socket_.native_non_blocking(true, ignored);
  }

  void Start() {
    asio::async_read(
        socket_, asio::buffer(bytes_), [self = shared_from_this()](std::error_code error, size_t) {
          if (self->hub_ == nullptr) return;
          if (error) return self->hub_->OnSessionEnd(self->id_, "");
          self->hub_->OnMessage(self->id_, std::string(self->bytes_.begin(), self->bytes_.end()));
          if (self->hub_ != nullptr) self->Start();
        });
  }
  // Sends a message. Returns false if the process has exited or does not read its messages.
  bool Send(const RankLinkMessage& message, UniqueFd fd) {
    if (unsent_.size() >= kMaxUnsent) return false;
    unsent_.push_back({EncodeRankLink(message), std::move(fd)});
    return unsent_.size() > 1 || Flush();
  }
  void Close() {
    hub_ = nullptr;
    std::error_code ignored;
    socket_.close(ignored);
  }

 private:
  struct Unsent {
    std::string bytes;
    UniqueFd fd;
  };

  // Writes as much as the socket accepts now, and the rest later. Returns false if the process has
  // exited.
  bool Flush() {
    while (!unsent_.empty()) {
      Unsent& first = unsent_.front();
      const long sent = SendSomeWithFd(socket_.native_handle(), first.bytes, first.fd.get());
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0) break;
      first.fd.Reset();
      first.bytes.erase(0, static_cast<size_t>(sent));
      if (first.bytes.empty()) unsent_.pop_front();
    }
    if (unsent_.empty()) return true;
    socket_.async_wait(LocalSocket::wait_write, [self = shared_from_this()](std::error_code error) {
      if (self->hub_ == nullptr) return;
      if (error || !self->Flush()) self->hub_->OnSessionEnd(self->id_, "");
    });
    return true;
  }

  RankLinkHub* hub_;  // nullptr after the session was closed
  const uint64_t id_;
  LocalSocket socket_;
  std::deque<Unsent> unsent_;  // unsent messages; a write is pending unless empty
  std::array<char, kRankLinkMessageBytes> bytes_;
};

// A connection from another node's agent that has not received its first message.
class RankLinkHub::Arrival : public std::enable_shared_from_this<Arrival> {
 public:
  Arrival(RankLinkHub& hub, uint64_t id, uint32_t node, UniqueFd plain)
      : hub_(&hub),
        id_(id),
        node_(node),
        socket_(hub.loop_, asio::local::stream_protocol(), plain.Release()),
        limit_(hub.loop_, kFirstMessageLimit) {}

  void Start() {
    limit_.async_wait([self = shared_from_this()](std::error_code cancelled) {
      std::error_code ignored;
      if (!cancelled) self->socket_.close(ignored);
    });
    asio::async_read(
        socket_, asio::buffer(bytes_), [self = shared_from_this()](std::error_code error, size_t) {
          self->limit_.cancel();
          if (self->hub_ == nullptr) return;
          std::error_code failed = error;
          UniqueFd plain(failed ? -1 : self->socket_.release(failed));
          self->hub_->OnFirstMessage(self->id_, self->node_,
                                     std::string(self->bytes_.begin(), self->bytes_.end()),
                                     std::move(plain));
        });
  }
  void Close() {
    hub_ = nullptr;
    std::error_code ignored;
    limit_.cancel();
    socket_.close(ignored);
  }

 private:
  RankLinkHub* hub_;  // nullptr after the connection was closed
  const uint64_t id_;
  const uint32_t node_;
  LocalSocket socket_;
  asio::steady_timer limit_;
  std::array<char, kRankLinkMessageBytes> bytes_;
};

RankLinkHub::RankLinkHub(asio::io_context& loop, const pb::PrepareRequest& prepare,
                         std::function<void(const std::string&)> on_line)
    : loop_(loop),
      poster_(std::make_shared<LoopPoster>(loop)),
      node_(prepare.node_index()),
      is_local_(prepare.job().local()),
      network_interface_(prepare.job().network_interface()),
      on_line_(std::move(on_line)),
      core_(node_) {}

RankLinkHub::~RankLinkHub() {
  poster_->Close();
  for (const auto& [id, session] : sessions_) session->Close();
  for (const auto& [id, arrival] : arrivals_) arrival->Close();
}

Result<std::unique_ptr<RankLinkHub>> RankLinkHub::Open(
    asio::io_context& loop, const pb::PrepareRequest& prepare, uint32_t num_nodes,
    const std::string& job_folder, std::function<void(const std::string&)> on_line) {
  std::unique_ptr<RankLinkHub> hub(new RankLinkHub(loop, prepare, std::move(on_line)));
  DSL_TRY(hub->OpenSocket(prepare, job_folder));
  if (num_nodes > 1) DSL_TRY(hub->OpenPort(prepare, num_nodes));
  return hub;
}

Result<void> RankLinkHub::OpenSocket(const pb::PrepareRequest& prepare,
                                     const std::string& job_folder) {
  const auto on_rank = [this](UniqueFd connection) { OnRank(std::move(connection)); };
  const SocketPurpose purpose = {"for connections between ranks", "make one of them right"};
  Result<std::unique_ptr<AttachSocket>> socket =
      AttachSocket::Listen(loop_, {job_folder}, "ranks.sock", on_rank, purpose);
  if (!socket.ok()) {
    const std::string why = socket.error().message;
    socket = AttachSocket::Listen(loop_, SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                                  SocketNameOf(prepare), on_rank, purpose);
    if (!socket.ok()) return Error{socket.error().code, why + "; " + socket.error().message};
  }
  socket_ = *std::move(socket);
  return {};
}

Result<void> RankLinkHub::OpenPort(const pb::PrepareRequest& prepare, uint32_t num_nodes) {
  RaiseDescriptorLimit();
  AcceptorOptions options;
  options.job_id = prepare.job().job_id();
  options.num_nodes = num_nodes;
  options.loopback_only = prepare.job().local();
  options.max_of_node = kMaxOfNode;
  options.purpose = "connections between ranks";
  DSL_TRY_ASSIGN(dialer_, NodeDialer::Start(prepare.job().job_id(), prepare.credentials()));
  DSL_TRY_ASSIGN(
      acceptor_,
      Acceptor::Start(
          options, prepare.credentials(),
          [this, poster = poster_](const AcceptedNode& node, UniqueFd plain) {
            poster->Post(
                [this, index = node.index, shared = std::make_shared<UniqueFd>(std::move(plain))] {
                  OnNode(index, std::move(*shared));
                });
          },
          [this, poster = poster_](const std::string& line) {
            poster->Post([this, line] { on_line_("connections between ranks: " + line); });
          }));
  return {};
}

void RankLinkHub::OnRank(UniqueFd connection) {
  const uint64_t id = ++last_id_;
  const auto session = std::make_shared<Session>(*this, id, std::move(connection));
  sessions_.emplace(id, session);
  session->Start();
}

void RankLinkHub::OnMessage(uint64_t session, const std::string& bytes) {
  const Result<RankLinkMessage> message = DecodeRankLink(bytes);
  if (!message.ok()) return OnSessionEnd(session, message.error().message);
  const bool is_hello = message->kind == RankLinkMessage::Kind::kHello;
  CarryOut(core_.OnMessage(session, *message, is_hello ? EndpointsOn(message->text) : ""));
}

void RankLinkHub::OnSessionEnd(uint64_t session, const std::string& why) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (!why.empty()) on_line_("connections between ranks: a local process was refused: " + why);
  const std::shared_ptr<Session> ended = found->second;
  sessions_.erase(found);
  ended->Close();
  core_.OnSessionEnd(session);
}

void RankLinkHub::OnNode(uint32_t node, UniqueFd plain) {
  const uint64_t id = ++last_id_;
  const auto arrival = std::make_shared<Arrival>(*this, id, node, std::move(plain));
  arrivals_.emplace(id, arrival);
  arrival->Start();
}

void RankLinkHub::OnFirstMessage(uint64_t arrival, uint32_t node, const std::string& bytes,
                                 UniqueFd plain) {
  arrivals_.erase(arrival);
  if (!plain) return;
  const Result<RankLinkMessage> message = DecodeRankLink(bytes);
  if (!message.ok()) {
    on_line_("connections between ranks: refused one of another node: " + message.error().message);
    return;
  }
  if (message->kind == RankLinkMessage::Kind::kVote) {
    if (on_voter_) on_voter_(node, std::move(plain));
    return;
  }
  CarryOut(core_.OnIncoming(*message, node, std::move(plain)));
}

void RankLinkHub::DialToVote(const std::string& endpoint, uint32_t node, milliseconds limit,
                             std::function<void(Result<UniqueFd> plain)> then) {
  if (!dialer_) return;
  dialer_->Dial({endpoint}, node, limit, [poster = poster_, then](Result<UniqueFd> plain) {
    RankLinkMessage first;
    first.kind = RankLinkMessage::Kind::kVote;
    if (plain.ok() && !SendWithFd(plain->get(), EncodeRankLink(first), -1))
      plain = Error{ExitCode::kUnavailable, "the connection broke"};
    poster->Post([then, shared = std::make_shared<Result<UniqueFd>>(std::move(plain))] {
      then(std::move(*shared));
    });
  });
}

// Returns the endpoints of this agent on `interfaces`, separated by spaces. Interfaces that a rank
// names are preferred to the interface of the job. Empty if no port is open.
std::string RankLinkHub::EndpointsOn(const std::string& interfaces) const {
  if (port() == 0) return "";
  std::vector<std::string> addresses;
  std::istringstream names(interfaces.empty() ? network_interface_ : interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    for (std::string& address : ReachableAddresses(name)) addresses.push_back(std::move(address));
  }
  if (addresses.empty()) addresses = ReachableAddresses(network_interface_);
  if (is_local_ || addresses.empty()) addresses = {"127.0.0.1"};
  std::string endpoints;
  for (const std::string& address : addresses) {
    const std::string endpoint = JoinHostPort(address, port());
    if (endpoints.size() + 1 + endpoint.size() > kMaxRankLinkText) break;
    endpoints += (endpoints.empty() ? "" : " ") + endpoint;
  }
  return endpoints;
}

void RankLinkHub::CarryOut(RankLinkActions actions) {
  for (RankLinkAction& action : actions) std::visit([this](auto& one) { Do(one); }, action);
}

void RankLinkHub::Do(rank_link_action::Send& action) {
  const auto found = sessions_.find(action.session);
  if (found == sessions_.end()) return;
  if (!found->second->Send(action.message, std::move(action.fd)))
    OnSessionEnd(action.session, "it does not read what it asked for");
}

void RankLinkHub::Do(rank_link_action::ConnectHere& action) {
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok())
    return CarryOut(core_.OnFailed(action.session, action.message, pair.error().message));
  CarryOut(core_.OnConnected(action.session, action.message, std::move(pair->ours)));
  CarryOut(core_.OnIncoming(action.message, node_, std::move(pair->theirs)));
}

void RankLinkHub::Do(rank_link_action::ConnectTo& action) {
  if (!dialer_) {
    return CarryOut(
        core_.OnFailed(action.session, action.message, "the job has no other node than this"));
  }
  std::vector<std::string> endpoints;
  std::istringstream list(action.message.text);
  for (std::string endpoint; list >> endpoint;) endpoints.push_back(endpoint);
  dialer_->Dial(std::move(endpoints), action.message.node, kConnectLimit,
                [this, poster = poster_, session = action.session,
                 message = action.message](Result<UniqueFd> plain) {
                  const auto shared = std::make_shared<Result<UniqueFd>>(std::move(plain));
                  poster->Post([this, session, message, shared] {
                    if (!shared->ok()) {
                      return CarryOut(core_.OnFailed(session, message, shared->error().message));
                    }
                    UniqueFd fd = std::move(**shared);
                    if (!SendWithFd(fd.get(), EncodeRankLink(message), -1)) {
                      return CarryOut(core_.OnFailed(session, message, "the connection broke"));
                    }
                    CarryOut(core_.OnConnected(session, message, std::move(fd)));
                  });
                });
}

void RankLinkHub::Do(rank_link_action::Close& action) { OnSessionEnd(action.session, action.why); }

void RankLinkHub::Do(rank_link_action::LogRefusal& action) {
  on_line_("connections between ranks: refused one of another node: " + action.why);
}

}  // namespace dslaunch
