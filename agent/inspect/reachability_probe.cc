#include "agent/inspect/reachability_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/ip/v6_only.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "agent/inspect/node_info.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "net/addresses.h"
#include "proto/contract/job_id.h"

namespace dslaunch {
namespace {

std::string MarkerIn(const std::string& folder, const std::string& token) {
  return folder + "/.dslaunch-" + token;
}

// Returns the folders that nodes may share, with their paths on this node.
std::vector<pb::MarkedFolder> FoldersToMark(const std::string& cwd) {
  std::vector<pb::MarkedFolder> folders;
  const auto add = [&](pb::MarkedFolder::Use use, const std::string& path) {
    pb::MarkedFolder folder;
    folder.set_use(use);
    folder.set_path(path);
    folders.push_back(std::move(folder));
  };
  add(pb::MarkedFolder::STATE, NearestToJobsFolder());
  if (cwd.starts_with('/')) add(pb::MarkedFolder::CWD, cwd);
  return folders;
}

// An attempt to connect to one endpoint.
struct ConnectAttempt {
  UniqueFd socket;
  Clock::time_point started;
  bool connected = false;
  std::string heard;
  bool over = false;
};

std::string Connect(const std::string& endpoint, ConnectAttempt& attempt) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(PortOfEndpoint(endpoint));
  const int status = ::getaddrinfo(HostOfEndpoint(endpoint).c_str(), port.c_str(), &hints, &found);
  if (status != 0) return ::gai_strerror(status);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> holder(found, ::freeaddrinfo);
  attempt.started = Clock::now();
  attempt.socket.Reset(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!attempt.socket) return std::strerror(errno);
  if (::connect(attempt.socket.get(), found->ai_addr, found->ai_addrlen) != 0 &&
      errno != EINPROGRESS)
    return std::strerror(errno);
  return "";
}

// Continues the attempt after an event on its socket.
void Advance(ConnectAttempt& attempt, const std::string& greeting, pb::ReachResult& result) {
  const auto end = [&](const std::string& trouble) {
    attempt.over = true;
    result.set_trouble(trouble);
    result.set_reached(trouble.empty());
  };
  if (!attempt.connected) {
    int error_number = 0;
    socklen_t size = sizeof error_number;
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) return end(std::strerror(error_number));
    attempt.connected = true;
    result.set_took_us(static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - attempt.started)
            .count()));
  }
  char chunk[128];
  const ssize_t n = ::recv(attempt.socket.get(), chunk, sizeof chunk, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) attempt.heard.append(chunk, static_cast<size_t>(n));
  if (attempt.heard == greeting) return end("");
  if (n > 0 && greeting.starts_with(attempt.heard)) return;
  // Another machine with the same address, or this node itself, may listen here, so a wrong
  // greeting means that the wanted node was not reached.
  end("something else listens at this address");
}

}  // namespace

pb::ListenReply ReachabilityProbe::Start(const pb::ListenRequest& request) {
  Stop();
  pb::ListenReply reply;
  if (!IsJobId(request.token())) {
    reply.set_refusal("the token is not valid");
    return reply;
  }
  greeting_ = request.token() + "\n";
  for (pb::MarkedFolder& folder : FoldersToMark(request.cwd())) {
    const std::string marker = MarkerIn(folder.path(), request.token());
    const UniqueFd file(
        ::open(marker.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file)
      markers_.push_back(marker);
    else if (errno != EEXIST)  // EEXIST means that both folders are the same
      folder.set_trouble(std::strerror(errno));
    *reply.add_folders() = std::move(folder);
  }
  timer_.expires_after(milliseconds(request.for_ms()));
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Stop();
  });

  asio::error_code error;
  acceptor_.open(asio::ip::tcp::v6(), error);
  if (!error) acceptor_.set_option(asio::ip::v6_only(false), error);
  if (!error) acceptor_.bind({asio::ip::tcp::v6(), 0}, error);
  if (error) {  // tries IPv4, because the node may lack IPv6
    asio::error_code ignored;
    acceptor_.close(ignored);
    acceptor_.open(asio::ip::tcp::v4(), error);
    if (!error) acceptor_.bind({asio::ip::tcp::v4(), 0}, error);
  }
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) {
    const int port = acceptor_.local_endpoint(error).port();
    for (const std::string& address : ReachableAddresses())
      reply.add_endpoints(JoinHostPort(address, port));
    Accept();
  }
  if (error) reply.set_refusal("cannot open a TCP port: " + error.message());
  return reply;
}

void ReachabilityProbe::Stop() {
  asio::error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
  for (const std::string& marker : std::exchange(markers_, {})) ::unlink(marker.c_str());
}

void ReachabilityProbe::Accept() {
  acceptor_.async_accept([this](const asio::error_code& error, asio::ip::tcp::socket socket) {
    if (error) return;  // the listener was closed, or no descriptor is left
    asio::error_code ignored;
    socket.non_blocking(true, ignored);
    // The greeting fits into the buffer of any new connection, so this write does not block.
    socket.write_some(asio::buffer(greeting_), ignored);
    Accept();
  });
}

pb::ReachReply ProbeReachability(const pb::ReachRequest& request) {
  const Deadline deadline = Deadline::After(milliseconds(request.patience_ms()));
  const std::string greeting = request.token() + "\n";
  pb::ReachReply reply;
  std::vector<ConnectAttempt> attempts(static_cast<size_t>(request.endpoints_size()));
  for (int i = 0; i < request.endpoints_size(); ++i) {
    pb::ReachResult& result = *reply.add_results();
    result.set_endpoint(request.endpoints(i));
    const std::string address = HostOfEndpoint(request.endpoints(i));
    result.set_local_address(LocalAddressTowards(address));
    result.set_interface(InterfaceTowards(address).value_or(""));
    result.set_trouble(Connect(request.endpoints(i), attempts[static_cast<size_t>(i)]));
    attempts[static_cast<size_t>(i)].over = !result.trouble().empty();
  }
  while (!deadline.Expired() &&
         !std::ranges::all_of(attempts, [](const ConnectAttempt& each) { return each.over; })) {
    std::vector<pollfd> fds;
    for (const ConnectAttempt& each : attempts) {
      fds.push_back({each.over ? -1 : each.socket.get(),
                     static_cast<short>(each.connected ? POLLIN : POLLOUT), 0});
    }
    if (::poll(fds.data(), fds.size(), deadline.PollMs()) <= 0) continue;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0)
        Advance(attempts[i], greeting, *reply.mutable_results(static_cast<int>(i)));
    }
  }
  for (size_t i = 0; i < attempts.size(); ++i) {
    if (attempts[i].over) continue;
    reply.mutable_results(static_cast<int>(i))
        ->set_trouble(attempts[i].connected ? "it accepts the connection but does not answer"
                                            : "no answer");
  }
  for (pb::MarkedFolder& folder : FoldersToMark(request.cwd())) {
    if (::access(folder.path().c_str(), F_OK) != 0)
      folder.set_trouble(std::strerror(errno));
    else if (IsJobId(request.token()))
      folder.set_seen(::access(MarkerIn(folder.path(), request.token()).c_str(), F_OK) == 0);
    *reply.add_folders() = std::move(folder);
  }
  return reply;
}

}  // namespace dslaunch
