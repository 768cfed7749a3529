// Implements an agent for ranks that are threads of a test: connects them to each other within this
// process (proto/contract/rank_link.h).
#pragma once

#include <poll.h>

#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/os/pass_fd.h"
#include "base/os/socket_pair.h"
#include "proto/contract/rank_link.h"

namespace dslaunch {

class FakeRankAgent {
 public:
  explicit FakeRankAgent(size_t ranks) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      SocketPair pair = *MakeSocketPair();
      agents_.push_back(std::move(pair.ours));
      ranks_.push_back(std::move(pair.theirs));
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeRankAgent() {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    thread_.join();
  }

  // Returns the socket of `rank`. Precondition: called at most once per rank.
  UniqueFd Take(size_t rank) { return std::move(ranks_.at(rank)); }

 private:
  void Run() {
    while (true) {
      {
        const MutexLock lock(mutex_);
        if (stop_) return;
      }
      std::vector<pollfd> polls;
      for (const UniqueFd& agent : agents_) polls.push_back({agent.get(), POLLIN, 0});
      if (::poll(polls.data(), polls.size(), /*timeout=*/20) <= 0) continue;
      for (size_t rank = 0; rank < polls.size(); ++rank) {
        if (polls[rank].revents != 0 && !Serve(static_cast<uint32_t>(rank))) agents_[rank].Reset();
      }
    }
  }

  // Answers one message of `rank`. Returns false if the rank has closed its socket.
  bool Serve(uint32_t rank) {
    std::string bytes(kRankLinkMessageBytes, '\0');
    UniqueFd none;
    for (size_t have = 0; have < bytes.size();) {
      const long got =
          ReceiveWithFd(agents_[rank].get(), bytes.data() + have, bytes.size() - have, none);
      if (got <= 0) return false;
      have += static_cast<size_t>(got);
    }
    RankLinkMessage message = *DecodeRankLink(bytes);
    if (message.kind == RankLinkMessage::Kind::kHello) {
      message.kind = RankLinkMessage::Kind::kWelcome;
      SendWithFd(agents_[rank].get(), EncodeRankLink(message), -1);
      welcomed_.insert(rank);
      for (const auto& [link, fd] : std::exchange(waiting_[rank], {}))
        SendWithFd(agents_[rank].get(), link, fd.get());
      return true;
    }
    message.from = rank;
    message.kind = RankLinkMessage::Kind::kLink;
    SocketPair pair = *MakeSocketPair();
    const std::string link = EncodeRankLink(message);
    if (welcomed_.contains(message.to)) {
      SendWithFd(agents_.at(message.to).get(), link, pair.theirs.get());
    } else {
      waiting_[message.to].emplace_back(link, std::move(pair.theirs));
    }
    return SendWithFd(agents_[rank].get(), link, pair.ours.get());
  }

  // These three members are used only by thread_.
  std::vector<UniqueFd> agents_;  // the agent's ends of the ranks' sockets
  std::set<uint32_t> welcomed_;
  std::map<uint32_t, std::vector<std::pair<std::string, UniqueFd>>>
      waiting_;  // connections to ranks that have not sent their hello yet, by rank
  std::vector<UniqueFd> ranks_;
  Mutex mutex_;
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last, because the thread uses the other members
};

}  // namespace dslaunch
