// Sends and receives a rank's tensors over connections to the other ranks of a group.
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

// Runs a thread that transfers messages. Messages are matched by peer, tag and order. A message is
// sent over the connection that the sender dialed, and only after the receiver has requested it.
// Nothing is therefore buffered, and messages of different tags may be awaited in any order.
//
// A message fails if its deadline has passed or its peer is lost; all other messages with that peer
// then fail too. Ranks are ranks of the group, but error texts use ranks of the job. Thread-safe.
class LinkEngine {
 public:
  // Called once per message, on the engine's thread, when the message is complete or has failed.
  // `error` is null on success.
  using Done = std::function<void(std::exception_ptr error)>;
  // Requests a connection to a peer and then calls AdoptDialed or Fail. If the dialer throws, later
  // messages to the peer fail with that error. Called on the thread that calls Send.
  using Dialer = std::function<void(size_t peer)>;

  // Starts the thread. `names` has, by rank, the number of each rank in error texts.
  LinkEngine(size_t rank, std::vector<size_t> names, Dialer dialer);
  // Fails pending messages on this rank and on the peers.
  ~LinkEngine();
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  size_t rank() const { return rank_; }
  size_t ranks() const { return names_.size(); }

  // Begins to send a message of `bytes` bytes. The memory must stay valid until `done` is called.
  // `peer` must be another rank.
  void Send(size_t peer, uint64_t tag, const std::byte* data, size_t bytes, Deadline deadline,
            Done done);
  // Begins to receive a message of `bytes` bytes, under the conditions of Send.
  void Receive(size_t peer, uint64_t tag, std::byte* data, size_t bytes, Deadline deadline,
               Done done);

  // Adds a connected stream socket to `peer` that this rank dialed.
  void AdoptDialed(size_t peer, UniqueFd fd);
  // Adds a connected stream socket that `peer` dialed.
  void AdoptIncoming(size_t peer, UniqueFd fd);
  // Marks `peer` as lost and fails its pending transfers with `why`.
  void Fail(size_t peer, const std::string& why);
  // Marks all ranks as lost. When FailAll returns, no tensor is accessed any more, but `done` of
  // pending messages may still be called. Must not be called on the engine's thread.
  void FailAll(const std::string& why);

 private:
  // Precedes each message. A receiver sends it alone to request a message.
  struct Header {
    uint64_t tag = 0;
    uint64_t bytes = 0;
  };
  struct Transfer {
    Header header;
    std::byte* data = nullptr;  // memory of the message; only read if the message is sent
    Deadline deadline;
    Done done;
  };
  // The state of a message or header that is being written or read.
  struct Progress {
    std::array<std::byte, sizeof(Header)> header;
    size_t bytes = 0;  // number of transferred bytes of header and message together
  };
  struct Outgoing {
    UniqueFd fd;
    // Messages that the receiver has not requested yet, by tag.
    std::map<uint64_t, std::deque<Transfer>> waiting;
    // Sizes of requested messages for which Send was not called yet, by tag.
    std::map<uint64_t, std::deque<uint64_t>> asked;
    std::deque<Transfer> ready;  // messages that can be written; the first is being written
    Progress written;
    Progress read;  // progress of a request's header
  };
  struct Incoming {
    UniqueFd fd;
    std::map<uint64_t, std::deque<Transfer>> waiting;  // expected messages, by tag
    std::deque<Header> asks;  // requests for messages; the first is being written
    Progress written;
    std::optional<Transfer> arriving;
    Progress read;
  };
  struct Peer {
    Outgoing out;
    Incoming in;
    std::string lost;  // reason why the peer is lost; empty if it is not lost
  };
  struct Ended {
    Done done;
    std::string error;  // error text of the transfer; empty on success
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
  UniqueFd doorbell_;  // eventfd that wakes the thread

  // peers_, ended_ and looked_ are used only by the thread.
  std::vector<Peer> peers_;
  std::vector<Ended> ended_;
  Clock::time_point looked_ = Clock::now();  // time of the last check for late messages

  Mutex mutex_;
  std::vector<std::function<void()>> submitted_ DSL_GUARDED_BY(mutex_);
  std::vector<bool> dial_begun_ DSL_GUARDED_BY(mutex_);
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // declared last because it uses the other members
};

}  // namespace dslaunch
