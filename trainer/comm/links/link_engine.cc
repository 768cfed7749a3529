#include "trainer/comm/links/link_engine.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <stdexcept>
#include <utility>

namespace dslaunch {
namespace {

// Interval between two checks for messages whose deadline has passed.
constexpr milliseconds kLook{500};

constexpr char kPrefix[] = "connections of the ranks: ";

std::exception_ptr Failure(const std::string& why) {
  return std::make_exception_ptr(
      std::runtime_error(why.starts_with(kPrefix) ? why : kPrefix + why));
}

// Exception that is thrown if the peer has closed a connection.
struct ConnectionEnd {};

[[noreturn]] void Throw(const std::string& why) { throw std::runtime_error(why); }

// Returns the number of bytes that a system call has transferred, given its result; 0 if it would
// block. Throws ConnectionEnd if the connection is closed.
size_t Moved(ssize_t moved, bool reads) {
  if (moved > 0) return static_cast<size_t>(moved);
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  if (moved == 0 && !reads) return 0;
  throw ConnectionEnd();
}

void MakeNonBlocking(const UniqueFd& fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

LinkEngine::LinkEngine(size_t rank, std::vector<size_t> names, Dialer dialer)
    : rank_(rank),
      names_(std::move(names)),
      dialer_(std::move(dialer)),
      doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      peers_(names_.size()),
      dial_begun_(names_.size()) {
  if (!doorbell_) throw std::runtime_error(std::string("eventfd: ") + std::strerror(errno));
  thread_ = std::thread([this] { Run(); });
}

LinkEngine::~LinkEngine() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  Ring();
  thread_.join();
}

void LinkEngine::Send(size_t peer, uint64_t tag, const std::byte* data, size_t bytes,
                      Deadline deadline, Done done) {
  bool dials = false;
  {
    const MutexLock lock(mutex_);
    dials = !dial_begun_[peer];
    dial_begun_[peer] = true;
  }
  Transfer transfer{{tag, bytes}, const_cast<std::byte*>(data), deadline, std::move(done)};
  Submit([this, peer, shared = std::make_shared<Transfer>(std::move(transfer))] {
    Peer& to = peers_[peer];
    if (!to.lost.empty()) return ended_.push_back({std::move(shared->done), to.lost});
    const uint64_t own_tag = shared->header.tag;
    to.out.waiting[own_tag].push_back(std::move(*shared));
    try {
      Match(to.out, own_tag);
    } catch (const std::exception& error) {
      FailPeer(peer, "exchange with " + NameOf(peer) + ": " + error.what());
    }
  });
  if (!dials) return;
  try {
    dialer_(peer);
  } catch (const std::exception& error) {
    Fail(peer, error.what());
  }
}

void LinkEngine::Receive(size_t peer, uint64_t tag, std::byte* data, size_t bytes,
                         Deadline deadline, Done done) {
  Transfer transfer{{tag, bytes}, data, deadline, std::move(done)};
  Submit([this, peer, shared = std::make_shared<Transfer>(std::move(transfer))] {
    Peer& from = peers_[peer];
    if (!from.lost.empty()) return ended_.push_back({std::move(shared->done), from.lost});
    from.in.asks.push_back(shared->header);
    from.in.waiting[shared->header.tag].push_back(std::move(*shared));
  });
}

void LinkEngine::AdoptDialed(size_t peer, UniqueFd fd) {
  Submit([this, peer, shared = std::make_shared<UniqueFd>(std::move(fd))] {
    if (!peers_[peer].lost.empty()) return;
    MakeNonBlocking(*shared);
    peers_[peer].out.fd = std::move(*shared);
  });
}

void LinkEngine::AdoptIncoming(size_t peer, UniqueFd fd) {
  Submit([this, peer, shared = std::make_shared<UniqueFd>(std::move(fd))] {
    if (!peers_[peer].lost.empty() || peers_[peer].in.fd) return;
    MakeNonBlocking(*shared);
    peers_[peer].in.fd = std::move(*shared);
  });
}

void LinkEngine::Fail(size_t peer, const std::string& why) {
  Submit([this, peer, why] { FailPeer(peer, why); });
}

void LinkEngine::FailAll(const std::string& why) {
  std::promise<void> done;
  Submit([this, why, &done] {
    for (size_t peer = 0; peer < peers_.size(); ++peer) FailPeer(peer, why);
    done.set_value();
  });
  done.get_future().wait();  // short wait, because the thread wakes up at once
}

void LinkEngine::Submit(std::function<void()> act) {
  {
    const MutexLock lock(mutex_);
    submitted_.push_back(std::move(act));
  }
  Ring();
}

void LinkEngine::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

void LinkEngine::Run() {
  pthread_setname_np(pthread_self(), "dslaunch-net");
  while (true) {
    std::vector<std::function<void()>> submitted;
    {
      const MutexLock lock(mutex_);
      if (stop_) break;
      submitted.swap(submitted_);
    }
    for (const auto& act : submitted) act();
    CallEnded();
    Wait();
    CallEnded();
  }
  for (size_t peer = 0; peer < peers_.size(); ++peer)
    FailPeer(peer, "this rank has left the group");
  CallEnded();
}

// Waits until a socket is ready or there is new work, and advances the transfers.
void LinkEngine::Wait() {
  std::vector<pollfd> polls = {{doorbell_.get(), POLLIN, 0}};
  std::vector<size_t> polled;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    const Outgoing& out = peers_[peer].out;
    const Incoming& in = peers_[peer].in;
    if (!out.fd && !in.fd) continue;
    polled.push_back(peer);
    // poll() ignores the descriptor -1, so a closed connection keeps its position.
    polls.push_back(
        {out.fd.get(), static_cast<short>(out.ready.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    polls.push_back(
        {in.fd.get(), static_cast<short>(in.asks.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  }
  if (::poll(polls.data(), polls.size(), static_cast<int>(kLook.count())) < 0 && errno != EINTR)
    return;
  if (polls[0].revents != 0) {
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = ::read(doorbell_.get(), &rings, sizeof rings);
  }
  for (size_t i = 0; i < polled.size(); ++i)
    Advance(polled[i], polls[1 + 2 * i].revents, polls[2 + 2 * i].revents);
  if (Clock::now() - looked_ >= kLook) FailLate();
}

void LinkEngine::Advance(size_t peer, short out_events, short in_events) {
  Peer& one = peers_[peer];
  try {
    if (in_events != 0) {
      WriteAsks(one.in);
      ReadMessages(one.in);
    }
    if (out_events != 0) {
      ReadAsks(one.out);
      WriteMessages(one.out);
    }
  } catch (const ConnectionEnd&) {
    // A peer may have sent messages on the other connection before it exited. If this rank only
    // receives, these may still arrive, so the peer is not lost yet.
    const bool only_receives = in_events == 0 && one.out.waiting.empty() && one.out.ready.empty();
    if (!only_receives) return FailPeer(peer, NameOf(peer) + " has ended");
    one.out.fd.Reset();
  } catch (const std::exception& error) {
    FailPeer(peer, "exchange with " + NameOf(peer) + ": " + error.what());
  }
}

void LinkEngine::ReadAsks(Outgoing& out) {
  while (true) {
    Progress& read = out.read;
    const size_t moved = Moved(
        ::recv(out.fd.get(), read.header.data() + read.bytes, read.header.size() - read.bytes, 0),
        /*reads=*/true);
    if (moved == 0) return;
    read.bytes += moved;
    if (read.bytes < read.header.size()) continue;
    Header header;
    std::memcpy(&header, read.header.data(), sizeof header);
    read.bytes = 0;
    out.asked[header.tag].push_back(header.bytes);
    Match(out, header.tag);
  }
}

// Moves messages that are waiting and whose receiver has requested them to `ready`.
void LinkEngine::Match(Outgoing& out, uint64_t tag) {
  const auto waiting = out.waiting.find(tag);
  const auto asked = out.asked.find(tag);
  if (waiting == out.waiting.end() || asked == out.asked.end()) return;
  while (!waiting->second.empty() && !asked->second.empty()) {
    Transfer& transfer = waiting->second.front();
    if (transfer.header.bytes != asked->second.front()) {
      Throw("it expects " + std::to_string(asked->second.front()) + " bytes where this rank has " +
            std::to_string(transfer.header.bytes));
    }
    out.ready.push_back(std::move(transfer));
    waiting->second.pop_front();
    asked->second.pop_front();
  }
  if (waiting->second.empty()) out.waiting.erase(waiting);
  if (asked->second.empty()) out.asked.erase(asked);
}

void LinkEngine::WriteMessages(Outgoing& out) {
  while (!out.ready.empty()) {
    Transfer& transfer = out.ready.front();
    Progress& written = out.written;
    std::memcpy(written.header.data(), &transfer.header, sizeof transfer.header);
    iovec parts[2];
    size_t count = 0;
    constexpr size_t kHeaderBytes = sizeof(Header);
    if (written.bytes < kHeaderBytes)
      parts[count++] = {written.header.data() + written.bytes, kHeaderBytes - written.bytes};
    const size_t sent = written.bytes < kHeaderBytes ? 0 : written.bytes - kHeaderBytes;
    if (sent < transfer.header.bytes)
      parts[count++] = {transfer.data + sent, transfer.header.bytes - sent};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const size_t moved = Moved(::sendmsg(out.fd.get(), &message, MSG_NOSIGNAL), /*reads=*/false);
    if (moved == 0) return;
    written.bytes += moved;
    if (written.bytes < kHeaderBytes + transfer.header.bytes) continue;
    written.bytes = 0;
    ended_.push_back({std::move(transfer.done), ""});
    out.ready.pop_front();
  }
}

void LinkEngine::WriteAsks(Incoming& in) {
  while (!in.asks.empty()) {
    Progress& written = in.written;
    std::memcpy(written.header.data(), &in.asks.front(), sizeof(Header));
    const size_t moved = Moved(::send(in.fd.get(), written.header.data() + written.bytes,
                                      written.header.size() - written.bytes, MSG_NOSIGNAL),
                               /*reads=*/false);
    if (moved == 0) return;
    written.bytes += moved;
    if (written.bytes < written.header.size()) continue;
    written.bytes = 0;
    in.asks.pop_front();
  }
}

void LinkEngine::ReadMessages(Incoming& in) {
  constexpr size_t kHeaderBytes = sizeof(Header);
  while (true) {
    Progress& read = in.read;
    if (read.bytes < kHeaderBytes) {
      const size_t moved =
          Moved(::recv(in.fd.get(), read.header.data() + read.bytes, kHeaderBytes - read.bytes, 0),
                /*reads=*/true);
      if (moved == 0) return;
      read.bytes += moved;
      if (read.bytes < kHeaderBytes) continue;
      Header header;
      std::memcpy(&header, read.header.data(), sizeof header);
      const auto waiting = in.waiting.find(header.tag);
      if (waiting == in.waiting.end() || waiting->second.front().header.bytes != header.bytes)
        Throw("it sends " + std::to_string(header.bytes) + " bytes that this rank did not ask for");
      in.arriving = std::move(waiting->second.front());
      waiting->second.pop_front();
      if (waiting->second.empty()) in.waiting.erase(waiting);
    }
    const size_t have = read.bytes - kHeaderBytes;
    if (have < in.arriving->header.bytes) {
      const size_t moved =
          Moved(::recv(in.fd.get(), in.arriving->data + have, in.arriving->header.bytes - have, 0),
                /*reads=*/true);
      if (moved == 0) return;
      read.bytes += moved;
      if (read.bytes < kHeaderBytes + in.arriving->header.bytes) continue;
    }
    read.bytes = 0;
    ended_.push_back({std::move(in.arriving->done), ""});
    in.arriving.reset();
  }
}

void LinkEngine::FailLate() {
  looked_ = Clock::now();
  const auto is_late = [](const Transfer& transfer) { return transfer.deadline.Expired(); };
  const auto has_late = [&](const auto& by_tag) {
    return std::ranges::any_of(
        by_tag, [&](const auto& entry) { return std::ranges::any_of(entry.second, is_late); });
  };
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    const Outgoing& out = peers_[peer].out;
    const Incoming& in = peers_[peer].in;
    if (has_late(out.waiting) || has_late(in.waiting) || std::ranges::any_of(out.ready, is_late) ||
        (in.arriving && is_late(*in.arriving))) {
      FailPeer(peer, "timed out waiting for " + NameOf(peer));
    }
  }
}

void LinkEngine::FailPeer(size_t peer, const std::string& why) {
  Peer& one = peers_[peer];
  if (!one.lost.empty()) return;
  one.lost = why;
  // The memory of these transfers is no longer accessed, so they can end.
  const auto end = [&](Transfer& transfer) { ended_.push_back({std::move(transfer.done), why}); };
  for (auto* by_tag : {&one.out.waiting, &one.in.waiting}) {
    for (auto& [tag, transfers] : *by_tag) std::ranges::for_each(transfers, end);
  }
  std::ranges::for_each(one.out.ready, end);
  if (one.in.arriving) end(*one.in.arriving);
  one.out = Outgoing();
  one.in = Incoming();
}

void LinkEngine::CallEnded() {
  std::vector<Ended> ended;
  ended.swap(ended_);
  for (const Ended& one : ended) one.done(one.error.empty() ? nullptr : Failure(one.error));
}

}  // namespace dslaunch
