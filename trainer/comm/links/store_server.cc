#include "trainer/comm/links/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr int kPollMs = 60'000;

}  // namespace

StoreServer::StoreServer() : doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!doorbell_) throw std::runtime_error(std::string("store: eventfd: ") + std::strerror(errno));
  thread_ = std::thread([this] { Run(); });
}

StoreServer::~StoreServer() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  Ring();
  thread_.join();
}

void StoreServer::Adopt(UniqueFd client) {
  {
    const MutexLock lock(mutex_);
    adopted_.push_back(std::move(client));
  }
  Ring();
}

void StoreServer::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

void StoreServer::Run() {
  pthread_setname_np(pthread_self(), "dslaunch-store");
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (stop_) return;
      for (UniqueFd& fd : adopted_) {
        ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
        clients_[++last_id_].fd = std::move(fd);
      }
      adopted_.clear();
    }
    std::vector<pollfd> polls = {{doorbell_.get(), POLLIN, 0}};
    std::vector<uint64_t> ids;
    for (const auto& [id, client] : clients_) {
      ids.push_back(id);
      const int events = client.unsent.empty() ? POLLIN : POLLIN | POLLOUT;
      polls.push_back({client.fd.get(), static_cast<short>(events), 0});
    }
    if (::poll(polls.data(), polls.size(), kPollMs) < 0 && errno != EINTR) return;
    if (polls[0].revents != 0) {
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = ::read(doorbell_.get(), &rings, sizeof rings);
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto client = clients_.find(ids[i]);
      if (polls[i + 1].revents == 0 || client == clients_.end()) continue;
      if (Write(client->second) && Read(ids[i], client->second)) continue;
      core_.OnClientGone(ids[i]);
      clients_.erase(client);
    }
  }
}

bool StoreServer::Read(uint64_t id, Client& client) {
  std::string bytes(kReadBytes, '\0');
  const ssize_t got = ::recv(client.fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  client.read.append(bytes, 0, static_cast<size_t>(got));
  try {
    while (const std::optional<std::string> message = TakeStoreMessage(client.read)) {
      std::optional<StoreRequest> request = DecodeRequest(*message);
      if (!request) return false;
      for (const StoreCore::Answer& answer : core_.OnRequest(id, *std::move(request))) {
        const auto to = clients_.find(answer.client);
        if (to == clients_.end()) continue;
        to->second.unsent += EncodeReply(answer.reply);
        // Only a failure of client `id` counts here, because Run() removes any other disconnected
        // client when its loop reaches that client.
        if (!Write(to->second) && answer.client == id) return false;
      }
    }
  } catch (const std::runtime_error&) {
    return false;
  }
  return true;
}

bool StoreServer::Write(Client& client) {
  while (!client.unsent.empty()) {
    const ssize_t sent =
        ::send(client.fd.get(), client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    client.unsent.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace dslaunch
