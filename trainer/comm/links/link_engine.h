// The thread that sends and receives a rank's tensors over connections to the other ranks of a
// group.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Messages are matched by peer, tag and order. A message is sent over the sender's own connection
// to its peer, once the receiver has requested it, so that nothing is buffered and tags may be
// awaited in any order.
//
// A message fails when its deadline has passed or its peer is lost, and then all messages with that
// peer fail. Ranks are numbered in the group; error texts use ranks of the job. Thread-safe.
class LinkEngine {
 public:
  // Called once, on the engine's thread; null for success.
  using Done = std::function<void(std::exception_ptr error)>;
  // Requests a connection to a peer, which AdoptDialed or Fail answers. If it throws, later
  // messages to the peer fail with that error. Called by the thread that sends.
  using Dialer = std::function<void(size_t peer)>;

  // `names`: the ranks' names in error texts, by rank.
  LinkEngine(size_t rank, std::vector<size_t> names, Dialer dialer);
  // Fails pending messages, here and on the peers.
  ~LinkEngine();
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  size_t rank() const { return rank_; }
  size_t ranks() const { return names_.size(); }

  // The memory must stay valid until `done` is called. `peer` is another rank.
  void Send(size_t peer, uint64_t tag, const std::byte* data, size_t bytes, Deadline deadline,
            Done done);
  void Receive(size_t peer, uint64_t tag, std::byte* data, size_t bytes, Deadline deadline,
               Done done);

  // Adds a connected stream socket: this rank's own connection to `peer`, or peer's connection to
  // it.
  void AdoptDialed(size_t peer, UniqueFd fd);
  void AdoptIncoming(size_t peer, UniqueFd fd);
  // Marks `peer` as lost and fails its pending transfers with `why`.
  void Fail(size_t peer, const std::string& why);
  // Marks all ranks as lost. On return no tensor is accessed, but `done` of pending messages may
  // still have to be called. Not on the engine's thread.
  void FailAll(const std::string& why);

 private:
  // Sent before each message, and by its receiver to request it.
  struct Header {
    uint64_t tag = 0;
    uint64_t bytes = 0;
  };
  struct Transfer {
    Header header;
    std::byte* data = nullptr;  // the memory is only read when the message is sent
    Deadline deadline;
    Done done;
  };
  // A message or header that is being written or read.
  struct Progress {
    std::array<std::byte, sizeof(Header)> header;
    size_t bytes = 0;  // done so far, of header and message together
  };
  struct Outgoing {
    UniqueFd fd;
    std::map<uint64_t, std::deque<Transfer>> waiting;  // messages not requested yet, by tag
    std::map<uint64_t, std::deque<uint64_t>> asked;  // sizes of requests without a message, by tag
    std::deque<Transfer> ready;                      // the first is being written
    Progress written;
    Progress read;  // progress of a request's header
  };
  struct Incoming {
    UniqueFd fd;
    std::map<uint64_t, std::deque<Transfer>> waiting;  // expected messages, by tag
    std::deque<Header> asks;                           // requests; the first is being written
    Progress written;
    std::optional<Transfer> arriving;
    Progress read;
  };
  struct Peer {
    Outgoing out;
    Incoming in;
    std::string lost;  // why the peer is lost; empty: it is not
  };
  struct Ended {
    Done done;
    std::string error;  // empty: success
  };

  void Submit(std::function<void()> act);
  void Ring();
  void Run();
  void Wait();
  void Advance(size_t peer, short out_events, short in_events);
  void ReadAsks(Outgoing& out);
  void WriteMessages(Outgoing& out);
  void WriteAsks(Incoming& in);
  void ReadMessages(Incoming& in);
  void Match(Outgoing& out, uint64_t tag);
  void FailLate();
  void FailPeer(size_t peer, const std::string& why);
  void CallEnded();
  std::string NameOf(size_t peer) const { return "rank " + std::to_string(names_[peer]); }

  const size_t rank_;
  const std::vector<size_t> names_;
  const Dialer dialer_;
  UniqueFd doorbell_;  // an eventfd

  // Used by the thread only.
  std::vector<Peer> peers_;
  std::vector<Ended> ended_;
  Clock::time_point looked_ = Clock::now();  // last check for late messages

  Mutex mutex_;
  std::vector<std::function<void()>> submitted_ DSL_GUARDED_BY(mutex_);
  std::vector<bool> dial_begun_ DSL_GUARDED_BY(mutex_);
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace dslaunch
