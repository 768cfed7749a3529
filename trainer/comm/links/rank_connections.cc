#include "trainer/comm/links/rank_connections.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/os/pass_fd.h"
#include "base/os/unix_socket.h"
#include "base/text/sanitize.h"
#include "proto/contract/rank_link.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

using Kind = RankLinkMessage::Kind;

// Maximum number of connections that wait for a group to listen; further connections are closed.
constexpr size_t kMaxUnclaimed = 65'536;

TrainError Unavailable(const std::string& what) {
  return {ExitCode::kUnavailable,
          "no connections between ranks: " + what +
              "; the node's agent makes them, at the socket DSLAUNCH_RANK_SOCKET"};
}

UniqueFd ConnectTo(const std::string& path, Deadline deadline) {
  const std::optional<sockaddr_un> address = UnixAddress(path);
  if (!address) throw Unavailable("DSLAUNCH_RANK_SOCKET is too long for a socket's path");
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // While the agent's queue of connections is full, connect() blocks up to this time limit.
  const auto left = std::max<long>(deadline.Left().count(), 1);
  const timeval limit = {left / 1000, left % 1000 * 1000}, none = {0, 0};
  if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!fd || ConnectUnix(fd.get(), *address) != 0)
    throw Unavailable(path + ": " + std::strerror(errno));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
  return fd;
}

// Returns the agent's next message. Throws TrainError after the deadline, if the agent closes the
// socket, or if the message is not valid.
RankLinkMessage ReadMessage(int socket, Deadline deadline) {
  std::string bytes(kRankLinkMessageBytes, '\0');
  UniqueFd none;
  for (size_t have = 0; have < bytes.size();) {
    pollfd ready = {socket, POLLIN, 0};
    if (poll(&ready, 1, deadline.PollMs()) <= 0) {
      if (!deadline.Expired()) continue;
      throw TrainError(ExitCode::kTimedOut, "the node's agent does not answer this rank");
    }
    const long got = ReceiveWithFd(socket, bytes.data() + have, bytes.size() - have, none);
    if (got <= 0) throw Unavailable("the agent refused this rank; see its agent.log");
    have += static_cast<size_t>(got);
  }
  const Result<RankLinkMessage> message = DecodeRankLink(bytes);
  if (!message.ok()) throw Unavailable(message.error().message);
  return *message;
}

}  // namespace

std::string RankPlace::ToText() const { return std::to_string(node) + " " + endpoints; }

RankPlace RankPlace::FromText(const std::string& text) {
  char* end = nullptr;
  RankPlace place;
  place.node = static_cast<uint32_t>(std::strtoul(text.c_str(), &end, 10));
  if (end == text.c_str() || *end != ' ')
    throw TrainError(ExitCode::kInternal, "a rank reported an invalid node: " + Quoted(text));
  place.endpoints = end + 1;
  return place;
}

std::shared_ptr<RankConnections> RankConnections::Open(const std::string& socket_path, int rank,
                                                       uint64_t attempt,
                                                       const std::string& interfaces,
                                                       Deadline deadline) {
  return Open(ConnectTo(socket_path, deadline), rank, attempt, interfaces, deadline);
}

std::shared_ptr<RankConnections> RankConnections::Open(UniqueFd agent, int rank, uint64_t attempt,
                                                       const std::string& interfaces,
                                                       Deadline deadline) {
  std::shared_ptr<RankConnections> connections(new RankConnections(std::move(agent), rank));
  RankLinkMessage hello;
  hello.kind = Kind::kHello;
  hello.from = static_cast<uint32_t>(rank);
  hello.attempt = attempt;
  hello.text = interfaces;
  const int socket = connections->agent_.get();
  if (!SendWithFd(socket, EncodeRankLink(hello), -1)) throw Unavailable(std::strerror(errno));
  const RankLinkMessage welcome = ReadMessage(socket, deadline);
  if (welcome.kind != Kind::kWelcome) throw Unavailable("the agent answers something else");
  connections->place_ = {welcome.node, welcome.text};
  RankConnections* const raw = connections.get();
  connections->thread_ = std::thread([raw] { raw->Run(); });
  return connections;
}

RankConnections::RankConnections(UniqueFd agent, int rank)
    : agent_(std::move(agent)), rank_(static_cast<size_t>(rank)) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Unavailable(std::strerror(errno));
  stop_read_.Reset(ends[0]);
  stop_write_.Reset(ends[1]);
}

RankConnections::~RankConnections() {
  stop_write_.Reset();
  if (thread_.joinable()) thread_.join();
}

void RankConnections::Listen(const std::string& label, LinkListener listener) {
  const MutexLock lock(mutex_);
  std::vector<Arrived> others;
  for (Arrived& arrived : unclaimed_) {
    if (arrived.label == label) {
      listener.on_link(arrived.from, std::move(arrived.fd));
    } else {
      others.push_back(std::move(arrived));
    }
  }
  unclaimed_ = std::move(others);
  listeners_[label] = std::move(listener);
}

void RankConnections::Unlisten(const std::string& label) {
  const MutexLock lock(mutex_);
  listeners_.erase(label);
}

void RankConnections::Dial(const std::string& label, size_t to, const RankPlace& place) {
  RankLinkMessage dial;
  dial.kind = Kind::kDial;
  dial.from = static_cast<uint32_t>(rank_);
  dial.to = static_cast<uint32_t>(to);
  dial.node = place.node;
  dial.label = label;
  dial.text = place.endpoints;
  bool sent = false;
  {
    const MutexLock lock(send_mutex_);
    sent = SendWithFd(agent_.get(), EncodeRankLink(dial), -1);
  }
  const MutexLock lock(mutex_);
  if (sent && !agent_gone_) return;
  const auto listener = listeners_.find(label);
  if (listener != listeners_.end()) listener->second.on_failed(to, "the node's agent has ended");
}

void RankConnections::Run() {
  pthread_setname_np(pthread_self(), "dslaunch-links");
  std::string bytes(kRankLinkMessageBytes, '\0');
  size_t have = 0;
  UniqueFd fd;
  while (true) {
    std::array<pollfd, 2> ready = {{{agent_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), /*timeout=*/60'000) < 0 && errno != EINTR) break;
    if (ready[1].revents != 0) return;
    if (ready[0].revents == 0) continue;
    const long got = ReceiveWithFd(agent_.get(), bytes.data() + have, bytes.size() - have, fd);
    if (got <= 0) break;
    have += static_cast<size_t>(got);
    if (have < bytes.size()) continue;
    have = 0;
    OnBytes(bytes, std::move(fd));
    fd = UniqueFd();
  }
  OnAgentGone();
}

void RankConnections::OnBytes(const std::string& bytes, UniqueFd fd) {
  const Result<RankLinkMessage> message = DecodeRankLink(bytes);
  if (!message.ok()) return;
  const MutexLock lock(mutex_);
  const auto listener = listeners_.find(message->label);
  const bool is_own = message->from == rank_;
  if (message->kind == Kind::kFailed && listener != listeners_.end()) {
    listener->second.on_failed(message->to, message->text);
  } else if (message->kind != Kind::kLink || !fd) {
    return;
  } else if (listener != listeners_.end()) {
    if (is_own) {
      listener->second.on_dialed(message->to, std::move(fd));
    } else {
      listener->second.on_link(message->from, std::move(fd));
    }
  } else if (!is_own && unclaimed_.size() < kMaxUnclaimed) {
    unclaimed_.push_back({message->label, message->from, std::move(fd)});
  }
}

// Fails later requests for connections, because no new connections will arrive. Existing
// connections may still work for a short time.
void RankConnections::OnAgentGone() {
  const MutexLock lock(mutex_);
  agent_gone_ = true;
}

}  // namespace dslaunch
