#include "cli/transport/ssh/ssh_agent.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/os/socket_pair.h"
#include "base/os/unix_socket.h"

namespace dslaunch {
namespace {

constexpr char kFailure = 5;
constexpr char kRequestIdentities = 11;
constexpr char kIdentitiesAnswer = 12;
constexpr char kSignRequest = 13;
constexpr size_t kMaxMessageBytes = 256 * 1024;

std::string Number(size_t value) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i)
    bytes[static_cast<size_t>(i)] = static_cast<char>(value >> (24 - 8 * i));
  return bytes;
}

std::string WithLength(std::string_view bytes) { return Number(bytes.size()) + std::string(bytes); }

size_t ReadNumber(std::string_view bytes) {
  size_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Removes a length-prefixed string from the start of `rest` and returns it; nullopt if `rest` is
// too short.
std::optional<std::string> ReadString(std::string_view& rest) {
  if (rest.size() < 4) return std::nullopt;
  const size_t size = ReadNumber(rest);
  if (rest.size() - 4 < size) return std::nullopt;
  std::string text(rest.substr(4, size));
  rest.remove_prefix(4 + size);
  return text;
}

bool SendAll(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    pollfd room{fd, POLLOUT, 0};
    if (errno != EAGAIN || ::poll(&room, 1, deadline.PollMs()) == 0) return false;
  }
  return true;
}

bool ReceiveAll(int fd, std::string& bytes, Deadline deadline) {
  for (size_t have = 0; have < bytes.size();) {
    const ssize_t n = ::recv(fd, bytes.data() + have, bytes.size() - have, MSG_DONTWAIT);
    if (n > 0) have += static_cast<size_t>(n);
    if (n == 0) return false;
    if (n > 0 || errno == EINTR) continue;
    pollfd ready{fd, POLLIN, 0};
    if (errno != EAGAIN || ::poll(&ready, 1, deadline.PollMs()) == 0) return false;
  }
  return true;
}

// Receives a whole message and returns it without its length. Returns nullopt on an error, at the
// deadline, or if the message exceeds kMaxMessageBytes.
std::optional<std::string> Receive(int fd, Deadline deadline) {
  std::string size(4, '\0');
  if (!ReceiveAll(fd, size, deadline) || ReadNumber(size) > kMaxMessageBytes) return std::nullopt;
  std::string message(ReadNumber(size), '\0');
  if (message.empty() || !ReceiveAll(fd, message, deadline)) return std::nullopt;
  return message;
}

}  // namespace

std::vector<AgentKey> ChooseAgentKeys(std::vector<AgentKey> keys,
                                      const std::vector<std::string>& listed, bool listed_only) {
  std::vector<AgentKey> chosen;
  for (const std::string& blob : listed) {
    const auto key = std::ranges::find(keys, blob, &AgentKey::blob);
    if (key == keys.end()) continue;
    chosen.push_back(std::move(*key));
    keys.erase(key);
  }
  if (!listed_only) std::ranges::move(keys, std::back_inserter(chosen));
  return chosen;
}

std::vector<AgentKey> ParseAgentKeys(std::string_view answer) {
  std::vector<AgentKey> keys;
  if (answer.size() < 5 || answer.front() != kIdentitiesAnswer) return keys;
  const size_t count = ReadNumber(answer.substr(1));
  answer.remove_prefix(5);
  while (keys.size() < count) {
    std::optional<std::string> blob = ReadString(answer);
    std::optional<std::string> comment = ReadString(answer);
    if (!blob || !comment) return {};
    keys.push_back({*std::move(blob), *std::move(comment)});
  }
  return keys;
}

UniqueFd ConnectAgent(const std::string& socket_path) {
  const std::optional<sockaddr_un> address = UnixAddress(socket_path);
  if (socket_path.empty() || !address) return UniqueFd();
  // The socket is non-blocking, so that an agent whose queue is full counts as missing instead of
  // blocking the login.
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (ConnectUnix(fd.get(), *address) != 0) fd.Reset();
  return fd;
}

Result<std::vector<AgentKey>> ListAgentKeys(int agent_fd, Deadline deadline) {
  std::optional<std::string> answer;
  if (SendAll(agent_fd, WithLength(std::string(1, kRequestIdentities)), deadline))
    answer = Receive(agent_fd, deadline);
  if (!answer) {
    return Error{ExitCode::kUnavailable,
                 "the ssh-agent does not answer; check it with ssh-add -l, or unset SSH_AUTH_SOCK"};
  }
  return ParseAgentKeys(*answer);
}

AgentRelay::AgentRelay(UniqueFd agent, std::vector<AgentKey> keys, Deadline deadline)
    : agent_(std::move(agent)), keys_(std::move(keys)), deadline_(deadline) {
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return;
  ours_ = std::move(pair->ours);
  theirs_ = std::move(pair->theirs);
  thread_ = std::thread([this] { Serve(); });
}

AgentRelay::~AgentRelay() {
  if (!thread_.joinable()) return;
  ::shutdown(ours_.get(), SHUT_RDWR);
  ::shutdown(agent_.get(), SHUT_RDWR);
  thread_.join();
}

void AgentRelay::Serve() {
  std::string list(1, kIdentitiesAnswer);
  list += Number(keys_.size());
  for (const AgentKey& key : keys_) list += WithLength(key.blob) + WithLength(key.comment);
  while (const std::optional<std::string> request = Receive(ours_.get(), deadline_)) {
    std::optional<std::string> answer = std::string(1, kFailure);
    if (request->front() == kRequestIdentities) {
      answer = list;
    } else if (request->front() == kSignRequest) {
      answer.reset();
      if (SendAll(agent_.get(), WithLength(*request), deadline_))
        answer = Receive(agent_.get(), deadline_);
    }
    if (!answer || !SendAll(ours_.get(), WithLength(*answer), deadline_)) break;
  }
  ::shutdown(ours_.get(), SHUT_RDWR);
}

}  // namespace dslaunch
