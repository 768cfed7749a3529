#include "agent/probe/link_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/probe/starvation.h"
#include "base/errno_text.h"
#include "base/os/socket_pair.h"
#include "net/addresses.h"
#include "proto/contract/job_id.h"

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 256 << 10;
constexpr milliseconds kGreetingTimeout(1'000);
constexpr milliseconds kConnectTimeout(1'000);
constexpr milliseconds kAnswerSlack(500);
constexpr uint32_t kMostWindowMs = 2'000;
constexpr int kMostEndpoints = 16;
constexpr int kPings = 200;
constexpr milliseconds kPingTime(50);

using Microseconds = std::chrono::microseconds;

// Waits until `fd` is ready for `events`. Returns false at the deadline, or once `stop` is
// readable. `stop` is -1 if it is not used.
bool WaitFor(int fd, short events, int stop, Deadline deadline) {
  while (true) {
    std::array<pollfd, 2> fds = {{{fd, events, 0}, {stop, POLLIN, 0}}};
    const int ready = ::poll(fds.data(), fds.size(), deadline.PollMs());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || fds[1].revents != 0) return false;
    return true;
  }
}

// A socket with non-blocking calls. Waits end at a deadline or when `stop` is readable.
struct Link {
  int fd = -1;
  int stop = -1;

  // Returns the number of bytes read; 0 at the end of the stream, after an error, and at the
  // deadline.
  size_t ReadSome(char* data, size_t size, Deadline deadline) const {
    while (true) {
      const ssize_t n = ::recv(fd, data, size, MSG_DONTWAIT);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EAGAIN && errno != EINTR) return 0;
      if (!WaitFor(fd, POLLIN, stop, deadline)) return 0;
    }
  }
  bool Read(char* data, size_t size, Deadline deadline) const {
    for (size_t done = 0; done < size;) {
      const size_t n = ReadSome(data + done, size - done, deadline);
      if (n == 0) return false;
      done += n;
    }
    return true;
  }
  bool Write(const char* data, size_t size, Deadline deadline) const {
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::send(fd, data + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) {
        done += static_cast<size_t>(n);
        continue;
      }
      if (errno != EAGAIN && errno != EINTR) return false;
      if (!WaitFor(fd, POLLOUT, stop, deadline)) return false;
    }
    return true;
  }
};

struct Received {
  uint64_t bytes = 0;
  uint64_t us = 0;
  uint64_t BytesPerSecond() const {
    return us == 0
               ? 0
               : static_cast<uint64_t>(1e6 * static_cast<double>(bytes) / static_cast<double>(us));
  }
};

// Returns the amount of data that arrives until the end of the window, which begins with the first
// byte. TCP must first reach its speed, and a rate limit may allow a burst, so bytes in the first
// third do not count.
Received Receive(const Link& link, milliseconds window, Deadline deadline) {
  std::vector<char> chunk(kChunkBytes);
  Received received;
  if (link.ReadSome(chunk.data(), chunk.size(), deadline) == 0) return received;
  const Clock::time_point counted = Clock::now() + window / 3;
  const Deadline end = Deadline::After(window).Earlier(deadline);
  std::optional<Clock::time_point> begin;
  Clock::time_point last = counted;
  while (!end.Expired()) {
    const size_t n = link.ReadSome(chunk.data(), chunk.size(), end);
    const Clock::time_point now = Clock::now();
    if (n == 0) break;
    if (!begin && now >= counted) {
      begin = now;
      last = now;
    } else if (begin) {
      received.bytes += n;
      last = now;
    }
  }
  // A link may stall until the end of the window, so the time until that end counts too.
  const Clock::time_point until = end.Expired() ? Clock::now() : last;
  if (begin) {
    received.us =
        static_cast<uint64_t>(std::chrono::duration_cast<Microseconds>(until - *begin).count());
  }
  return received;
}

// Sends data until the end of the window, or until the peer answers or disconnects.
void SendFor(const Link& link, milliseconds window) {
  const std::vector<char> chunk(kChunkBytes);
  const Deadline end = Deadline::After(window);
  while (!end.Expired()) {
    if (WaitFor(link.fd, POLLIN, -1, Deadline::After(milliseconds(0)))) return;
    if (!link.Write(chunk.data(), chunk.size(), end)) return;
  }
}

void PutNumber(uint64_t number, char* to) {
  for (int i = 7; i >= 0; --i, number >>= 8) to[i] = static_cast<char>(number & 0xff);
}
uint64_t GetNumber(const char* from) {
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | static_cast<unsigned char>(from[i]);
  return number;
}

// Serves one connection. `over` is the deadline of the whole service.
void Serve(const Link& link, const std::string& token, Deadline over) {
  std::string greeting(token.size() + 4, '\0');
  if (!link.Read(greeting.data(), greeting.size(), Deadline::After(kGreetingTimeout).Earlier(over)))
    return;
  if (!greeting.starts_with(token + "\n")) return;
  const char* const mode = greeting.data() + token.size() + 1;
  const uint32_t window_ms =
      static_cast<unsigned char>(mode[1]) * 256u + static_cast<unsigned char>(mode[2]);
  const milliseconds window(std::min(window_ms, kMostWindowMs));
  const Deadline deadline = Deadline::After(2 * window + kAnswerSlack).Earlier(over);
  if (*mode == 'P') {
    char byte = 0;
    while (link.Read(&byte, 1, deadline) && link.Write(&byte, 1, deadline)) {
    }
  } else if (*mode == 'U') {
    const Received received = Receive(link, window, deadline);
    std::array<char, 16> answer;
    PutNumber(received.bytes, answer.data());
    PutNumber(received.us, answer.data() + 8);
    if (!link.Write(answer.data(), answer.size(), deadline)) return;
    // Closing a socket with unread data would reset the connection and lose the answer, so the rest
    // is read.
    ::shutdown(link.fd, SHUT_WR);
    std::vector<char> chunk(kChunkBytes);
    while (link.ReadSome(chunk.data(), chunk.size(), deadline) > 0) {
    }
  } else if (*mode == 'S') {
    std::array<char, 8> answer;
    PutNumber(RunDelayNs(), answer.data());
    (void)link.Write(answer.data(), answer.size(), deadline);
  } else if (*mode == 'D') {
    const std::vector<char> chunk(kChunkBytes);
    const Deadline end = Deadline::After(window + window / 2).Earlier(deadline);
    while (!end.Expired() && link.Write(chunk.data(), chunk.size(), end)) {
    }
  }
}

void AcceptUntil(UniqueFd listener, UniqueFd stop, const std::string& token, Deadline over) {
  while (WaitFor(listener.get(), POLLIN, stop.get(), over)) {
    const UniqueFd socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) continue;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Serve({socket.get(), stop.get()}, token, over);
  }
}

// Returns a socket that listens on a free port of all addresses, and sets `port`.
Result<UniqueFd> Listen(int& port) {
  for (const int family : {AF_INET6, AF_INET}) {  // IPv4 too, because the node may lack IPv6
    UniqueFd listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) continue;
    const int off = 0;
    if (family == AF_INET6)
      ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(listener.get(), raw, size) != 0 || ::listen(listener.get(), SOMAXCONN) != 0 ||
        ::getsockname(listener.get(), raw, &size) != 0)
      continue;
    port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(raw)->sin6_port
                                    : reinterpret_cast<sockaddr_in*>(raw)->sin_port);
    return listener;
  }
  return Error{ExitCode::kUnavailable, "cannot open a TCP port: " + ErrnoText(errno)};
}

// Connects to a numeric endpoint and returns the socket. The message of an error is the system's
// text.
Result<UniqueFd> Connect(const std::string& endpoint, Deadline deadline) {
  const auto fails = [](const std::string& why) { return Error{ExitCode::kUnavailable, why}; };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(HostOfEndpoint(endpoint).c_str(),
                    std::to_string(PortOfEndpoint(endpoint)).c_str(), &hints, &found);
  if (status != 0) return fails(::gai_strerror(status));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> holder(found, ::freeaddrinfo);
  UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fails(ErrnoText(errno));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return fails(ErrnoText(errno));
  if (!WaitFor(socket.get(), POLLOUT, -1, deadline)) return fails("no answer");
  int error_number = 0;
  socklen_t size = sizeof error_number;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
  if (error_number != 0) return fails(ErrnoText(error_number));
  return socket;
}

class LinkClient {
 public:
  LinkClient(const pb::MeasureLinkRequest& request, Deadline deadline)
      : token_(request.token()),
        window_ms_(std::clamp<uint32_t>(request.window_ms(), 1, kMostWindowMs)),
        deadline_(deadline) {}

  // Returns the shortest round trip in nanoseconds, or the reason why the endpoint was not reached
  // or did not answer.
  Result<uint64_t> RoundTripNs(const std::string& endpoint) {
    DSL_TRY_ASSIGN(const UniqueFd socket, Open(endpoint, 'P'));
    const Link link{socket.get(), -1};
    const Deadline end = Deadline::After(kPingTime).Earlier(deadline_);
    std::optional<uint64_t> shortest;
    for (int i = 0; i < kPings && (i == 0 || !end.Expired()); ++i) {
      char byte = 'p';
      const Clock::time_point sent = Clock::now();
      const Deadline answer = Deadline::After(kConnectTimeout).Earlier(deadline_);
      if (!link.Write(&byte, 1, answer) || !link.Read(&byte, 1, answer)) break;
      const auto ns = static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - sent).count());
      shortest = std::min(shortest.value_or(ns), ns);
    }
    if (!shortest)
      return Error{ExitCode::kUnavailable, "it accepts the connection but does not answer"};
    return *shortest;
  }

  uint64_t SentBytesPerSecond(const std::string& endpoint) {
    const Result<UniqueFd> socket = Open(endpoint, 'U');
    if (!socket.ok()) return 0;
    const Link link{socket->get(), -1};
    const milliseconds window(window_ms_);
    SendFor(link, window + window / 2);
    std::array<char, 16> answer;
    const Deadline wait = Deadline::After(2 * window + 2 * kAnswerSlack).Earlier(deadline_);
    if (!link.Read(answer.data(), answer.size(), wait)) return 0;
    return Received{GetNumber(answer.data()), GetNumber(answer.data() + 8)}.BytesPerSecond();
  }

  // Returns how long the server's thread has waited for a processor, in nanoseconds; 0 if unknown.
  uint64_t ServerDelayNs(const std::string& endpoint) {
    const Result<UniqueFd> socket = Open(endpoint, 'S');
    std::array<char, 8> answer;
    if (!socket.ok() || !Link{socket->get(), -1}.Read(answer.data(), answer.size(), deadline_))
      return 0;
    return GetNumber(answer.data());
  }

  uint64_t ReceivedBytesPerSecond(const std::string& endpoint) {
    const Result<UniqueFd> socket = Open(endpoint, 'D');
    if (!socket.ok()) return 0;
    return Receive({socket->get(), -1}, milliseconds(window_ms_), deadline_).BytesPerSecond();
  }

 private:
  Result<UniqueFd> Open(const std::string& endpoint, char mode) {
    DSL_TRY_ASSIGN(UniqueFd socket,
                   Connect(endpoint, Deadline::After(kConnectTimeout).Earlier(deadline_)));
    std::string greeting = token_ + "\n" + mode;
    greeting += static_cast<char>(window_ms_ >> 8);
    greeting += static_cast<char>(window_ms_ & 0xff);
    if (!Link{socket.get(), -1}.Write(greeting.data(), greeting.size(), deadline_))
      return Error{ExitCode::kUnavailable, "it closed the connection"};
    return socket;
  }

  const std::string token_;
  const uint32_t window_ms_;
  const Deadline deadline_;
};

// Measures how long this thread and the server's thread wait for a processor, and returns the
// larger value.
class EndsStarvation {
 public:
  EndsStarvation(LinkClient& client, const std::string& endpoint)
      : client_(client), endpoint_(endpoint), server_delay_ns_(client.ServerDelayNs(endpoint)) {}

  uint32_t Permille() {
    const uint32_t here = here_.Permille();
    const Clock::duration elapsed = Clock::now() - begin_;
    const uint64_t now_ns = client_.ServerDelayNs(endpoint_);
    return std::max(here, StarvedPermille(now_ns - std::min(now_ns, server_delay_ns_), elapsed));
  }

 private:
  LinkClient& client_;
  const std::string& endpoint_;
  const uint64_t server_delay_ns_;
  const StarvationMeter here_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

pb::ServeLinkReply LinkServer::Start(const pb::ServeLinkRequest& request) {
  Stop();
  pb::ServeLinkReply reply;
  if (!IsJobId(request.token())) {
    reply.set_refusal("the token is not valid");
    return reply;
  }
  int port = 0;
  Result<UniqueFd> listener = Listen(port);
  Result<SocketPair> stop = MakeSocketPair();
  if (!listener.ok() || !stop.ok()) {
    reply.set_refusal(listener.ok() ? stop.error().message : listener.error().message);
    return reply;
  }
  stop_ = std::move(stop->ours);
  thread_ = std::thread([listener = std::move(*listener), theirs = std::move(stop->theirs),
                         token = request.token(),
                         over = Deadline::After(milliseconds(request.for_ms()))]() mutable {
    AcceptUntil(std::move(listener), std::move(theirs), token, over);
  });
  for (const std::string& address : ReachableAddresses())
    reply.add_endpoints(JoinHostPort(address, port));
  return reply;
}

void LinkServer::Stop() {
  stop_.Reset();
  if (thread_.joinable()) thread_.join();
}

pb::LinkMeasurement MeasureLink(const pb::MeasureLinkRequest& request) {
  pb::LinkMeasurement measured;
  LinkClient client(request, Deadline::After(milliseconds(request.patience_ms())));
  for (int i = 0; i < std::min(request.endpoints_size(), kMostEndpoints); ++i) {
    const std::string& endpoint = request.endpoints(i);
    const Result<uint64_t> round_trip = client.RoundTripNs(endpoint);
    if (!round_trip.ok()) {
      measured.set_trouble(measured.trouble() + (i == 0 ? "" : ", ") + endpoint + ": " +
                           round_trip.error().message);
      continue;
    }
    measured.set_endpoint(endpoint);
    measured.clear_trouble();
    measured.set_round_trip_ns(*round_trip);
    EndsStarvation all(client, endpoint);
    EndsStarvation sending(client, endpoint);
    measured.set_sent_bytes_per_s(client.SentBytesPerSecond(endpoint));
    measured.set_sent_starved_permille(sending.Permille());
    EndsStarvation receiving(client, endpoint);
    measured.set_received_bytes_per_s(client.ReceivedBytesPerSecond(endpoint));
    measured.set_received_starved_permille(receiving.Permille());
    measured.set_starved_permille(all.Permille());
    return measured;
  }
  if (measured.trouble().empty()) measured.set_trouble("the other node has no address");
  return measured;
}

}  // namespace dslaunch
