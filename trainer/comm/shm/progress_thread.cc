#include "trainer/comm/shm/progress_thread.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>
#include <poll.h>
#include <pthread.h>

#include <stdexcept>
#include <utility>

#include "trainer/base/by_rank.h"

namespace dslaunch {
namespace {

// Returns an error with the prefix for which trainer/comm/explain.cc and
// agent/host/failure_evidence.cc search, so the prefix must not change.
std::exception_ptr Failure(const std::string& why) {
  return std::make_exception_ptr(std::runtime_error("shared memory of the ranks: " + why));
}

}  // namespace

ProgressThread::ProgressThread(SharedSegment segment, size_t rank, std::vector<UniqueFd> processes,
                               std::vector<size_t> names)
    : segment_(std::move(segment)),
      layout_(segment_.data(), names.size()),
      rank_(rank),
      names_(std::move(names)),
      flow_(layout_, rank_, names_) {
  for (size_t other = 0; other < names_.size(); ++other) {
    Peer& peer = peers_.emplace_back();
    if (other == rank_) continue;
    peer.sender.emplace(layout_, rank_, other);
    peer.receiver.emplace(layout_, other, rank_);
    peer.process = std::move(processes[other]);
  }
  thread_ = std::thread([this] { Run(); });
}

ProgressThread::~ProgressThread() {
  stop_ = true;
  Own().bell.Ring();
  thread_.join();
}

uint64_t ProgressThread::Submit(std::function<void(uint64_t id)> begin) {
  const MutexLock lock(mutex_);
  const uint64_t id = next_id_++;
  submitted_.push_back([begin = std::move(begin), id] { begin(id); });
  Own().bell.Ring();
  return id;
}

uint64_t ProgressThread::Begin(Collective collective, Deadline deadline, Done done) {
  return Submit([=, this](uint64_t id) {
    operations_.emplace(id, Operation{done, deadline, std::nullopt, collective});
    collectives_.push_back(id);
  });
}

uint64_t ProgressThread::Send(size_t to, uint64_t tag, const std::byte* data, size_t bytes,
                              Deadline deadline, Done done) {
  return Submit([=, this](uint64_t id) {
    operations_.emplace(id, Operation{done, deadline, to, std::nullopt});
    peers_[to].sender->Send({id, tag, data, bytes});
  });
}

uint64_t ProgressThread::Receive(size_t from, uint64_t tag, std::byte* data, size_t bytes,
                                 Deadline deadline, Done done) {
  return Submit([=, this](uint64_t id) {
    operations_.emplace(id, Operation{done, deadline, from, std::nullopt});
    peers_[from].receiver->Receive({id, tag, data, bytes});
  });
}

void ProgressThread::GiveUp(uint64_t id) {
  Submit([=, this](uint64_t) {
    const auto found = operations_.find(id);
    if (found == operations_.end()) return;
    const std::string why = "was cancelled";
    if (const std::optional<size_t> peer = found->second.peer) {
      FailPeer(*peer, why);  // a partly written message cannot be dropped, so the peer fails
    } else {
      FailCollectives(why);
    }
  });
}

void ProgressThread::Run() {
  pthread_setname_np(pthread_self(), "dslaunch-shm");
  const at::NoGradGuard no_grad;
  // A reduction is already divided over the ranks, and other threads compute, so LibTorch uses only
  // one thread here.
  const c10::ParallelGuard sequential(true);
  Clock::time_point looked = Clock::now();
  while (!stop_) {
    const uint32_t rings = Own().bell.Rings();
    const bool began = TakeSubmitted();
    if (Advance() || began) continue;
    if (operations_.empty()) {
      Own().bell.Sleep(rings, std::chrono::minutes(1));
      continue;
    }
    const bool late = Clock::now() - looked >= kLook;
    LookAtPeers(late);
    if (late) looked = Clock::now();
    // A process may have done its part just before it exited, so this tries once more before it
    // fails the lost ranks.
    if (Advance()) continue;
    FailLost();
    if (late) FailLate();
    if (!operations_.empty()) Own().bell.Sleep(rings, kLook);
  }
  Own().has_left.store(1);
  for (size_t rank = 0; rank < layout_.ranks(); ++rank) layout_.words(rank).bell.Ring();
  TakeSubmitted();
  while (!operations_.empty()) End(operations_.begin()->first, "this rank has left the group");
}

bool ProgressThread::TakeSubmitted() {
  std::vector<std::function<void()>> submitted;
  {
    const MutexLock lock(mutex_);
    submitted.swap(submitted_);
  }
  for (const auto& begin : submitted) begin();
  return !submitted.empty();
}

bool ProgressThread::Advance() {
  bool moved = AdvanceCollectives();
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer != rank_ && AdvanceMessages(peer)) moved = true;
  }
  return moved;
}

bool ProgressThread::AdvanceCollectives() {
  if (collectives_.empty()) return false;
  if (!collectives_failed_.empty()) {
    FailCollectives(collectives_failed_);
    return true;
  }
  try {
    bool moved = false;
    while (!collectives_.empty()) {
      std::optional<Collective>& waiting = operations_.at(collectives_.front()).collective;
      if (waiting) {
        flow_.Begin(*std::exchange(waiting, std::nullopt));
        moved = true;
      }
      if (flow_.Advance()) moved = true;
      if (flow_.busy()) break;
      End(std::exchange(collectives_.front(), 0), "");
      collectives_.pop_front();
    }
    return moved;
  } catch (const std::exception& error) {
    FailCollectives(error.what());
    return true;
  }
}

bool ProgressThread::AdvanceMessages(size_t peer) {
  const auto done = [this](uint64_t id) { End(id, ""); };
  try {
    const bool sent = peers_[peer].sender->Advance(done);
    return peers_[peer].receiver->Advance(done) || sent;
  } catch (const std::exception& error) {
    FailPeer(peer, "exchange with " + NameOf(peer) + ": " + error.what());
    return true;
  }
}

void ProgressThread::LookAtPeers(bool processes_too) {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (rank == rank_ || !peer.lost.empty()) continue;
    if (layout_.words(rank).has_left.load() != 0) peer.lost = NameOf(rank) + " has left the group";
    pollfd process = {peer.process.get(), POLLIN, 0};
    if (processes_too && poll(&process, 1, 0) > 0) peer.lost = NameOf(rank) + " has ended";
  }
}

void ProgressThread::FailLost() {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].lost.empty()) continue;
    FailPeer(rank, peers_[rank].lost);
  }
  for (const size_t rank : flow_.AwaitedRanks()) {
    if (!peers_[rank].lost.empty()) return FailCollectives(peers_[rank].lost);
  }
}

void ProgressThread::FailLate() {
  for (const auto& [id, operation] : operations_) {
    if (!operation.deadline.Expired()) continue;
    if (operation.peer) {
      FailPeer(*operation.peer, "timed out waiting for " + NameOf(*operation.peer));
    } else {
      FailCollectives("timed out waiting for " + RankList(Named(flow_.AwaitedRanks(), names_)));
    }
    return;  // `operations_` has changed; the next check continues
  }
}

void ProgressThread::FailPeer(size_t peer, const std::string& why) {
  std::vector<uint64_t> failed;
  for (const auto& [id, operation] : operations_) {
    if (operation.peer == peer) failed.push_back(id);
  }
  if (failed.empty()) return;
  // The failed messages' memory must not be accessed again, so new objects replace those that
  // access it.
  peers_[peer].sender.emplace(layout_, rank_, peer);
  peers_[peer].receiver.emplace(layout_, peer, rank_);
  peers_[peer].lost = why;
  for (const uint64_t id : failed) End(id, why);
}

void ProgressThread::FailCollectives(const std::string& why) {
  collectives_failed_ = why;
  flow_.GiveUp();
  while (!collectives_.empty()) {
    End(collectives_.front(), why);
    collectives_.pop_front();
  }
}

void ProgressThread::End(uint64_t id, const std::string& error) {
  const auto found = operations_.find(id);
  const Done done = std::move(found->second.done);
  operations_.erase(found);
  done(error.empty() ? nullptr : Failure(error));
}

}  // namespace dslaunch
