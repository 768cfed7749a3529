// The thread that moves a rank's tensors over its connections to the other ranks of a group.
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

// Messages are matched by peer, tag and order. A message goes over the sender's own connection to
// its peer, and only once the receiver has asked for it, so that nothing is stored on the way and
// tags may be awaited in any order.
//
// A message fails when its deadline has passed or its peer is gone, and then all with that peer
// fail. Ranks are those of the group; in messages they have the numbers of the job. Thread-safe.
class LinkEngine {
 public:
  // Called once, on the engine's thread; null for success.
  using Done = std::function<void(std::exception_ptr error)>;
  // Asks for a connection to a peer, which comes by AdoptDialed or Fail, or later messages to it
  // fail with what it throws. Called by the thread that sends.
  using Dialer = std::function<void(size_t peer)>;

  // `names`: what the ranks are called in messages, by rank.
  LinkEngine(size_t rank, std::vector<size_t> names, Dialer dialer);
  // What is under way fails, here and on its peers.
  ~LinkEngine();
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  size_t rank() const { return rank_; }
  size_t ranks() const { return names_.size(); }

  // The memory must stay until `done`. `peer` is another rank.
  void Send(size_t peer, uint64_t tag, const std::byte* data, size_t bytes, Deadline deadline,
            Done done);
  void Receive(size_t peer, uint64_t tag, std::byte* data, size_t bytes, Deadline deadline,
               Done done);

  // A connected stream socket: this rank's own connection to `peer`, or that of `peer` to it.
  void AdoptDialed(size_t peer, UniqueFd fd);
  void AdoptIncoming(size_t peer, UniqueFd fd);
  // Nothing comes of `peer` any more.
  void Fail(size_t peer, const std::string& why);
  // Nothing comes of any rank any more. On return no tensor is touched, but `done` of what was
  // under way may still have to be called. Not on the engine's thread.
  void FailAll(const std::string& why);

 private:
  // On the wire before each message, and from its receiver to ask for it.
  struct Header {
    uint64_t tag = 0;
    uint64_t bytes = 0;
  };
  struct Transfer {
    Header header;
    std::byte* data = nullptr;  // of a message that is sent it is only read
    Deadline deadline;
    Done done;
  };
  // A message or header that is being written or read.
  struct Progress {
    std::array<std::byte, sizeof(Header)> header;
    size_t bytes = 0;  // of header and message together
  };
  struct Outgoing {
    UniqueFd fd;
    std::map<uint64_t, std::deque<Transfer>> waiting;  // to be asked for; by tag
    std::map<uint64_t, std::deque<uint64_t>> asked;    // sizes; by tag
    std::deque<Transfer> ready;                        // the first is being written
    Progress written;
    Progress read;  // of a header that asks
  };
  struct Incoming {
    UniqueFd fd;
    std::map<uint64_t, std::deque<Transfer>> waiting;  // by tag
    std::deque<Header> asks;                           // the first is being written
    Progress written;
    std::optional<Transfer> arriving;
    Progress read;
  };
  struct Peer {
    Outgoing out;
    Incoming in;
    std::string lost;  // why nothing comes of it any more
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

  // Of the thread.
  std::vector<Peer> peers_;
  std::vector<Ended> ended_;
  Clock::time_point looked_ = Clock::now();  // for late messages

  Mutex mutex_;
  std::vector<std::function<void()>> submitted_ DSL_GUARDED_BY(mutex_);
  std::vector<bool> dial_begun_ DSL_GUARDED_BY(mutex_);
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace dslaunch
