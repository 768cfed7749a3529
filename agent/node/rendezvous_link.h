// Maintains an agent's stream to the rendezvous. Adds the sender to messages, sends heartbeats, and
// measures the round trip. If the connection breaks, reconnects and resumes the stream.
#pragma once

#include <asio/io_context.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "net/tunnel.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/lease.h"
#include "proto/wire/peer_check.h"
#include "rendezvous/client.h"
#include "rendezvous/unacknowledged.h"

namespace dslaunch {

// The agent's end of the stream to its rendezvous. Used on the loop's thread, except for Beat().
class RendezvousLink {
 public:
  // Receives a message of the rendezvous, on the loop's thread.
  using OnMessage = std::function<void(const pb::RendezvousMessage&)>;
  // Receives the reason for the end of the stream, on the loop's thread. Called once for each
  // Join(), as the last callback, unless Leave() was called.
  using OnEnd = std::function<void(const std::string& why)>;
  // Reports that a majority (rendezvous/majority.h) was present `age` before the rendezvous
  // answered the heartbeat sent at `sent`. Called on gRPC's threads when the answer arrives.
  using OnMajority = std::function<void(BootClock::time_point sent, std::chrono::microseconds age)>;
  // Looks for the rendezvous again without blocking, and calls `then` on the loop's thread.
  using Redial = std::function<void(std::function<void(Result<RendezvousRoute>)> then)>;

  // `limits` are the limits of the rendezvous' messages (proto/wire/peer_check.h); a message that
  // exceeds them ends the stream.
  RendezvousLink(asio::io_context& loop, std::string job_id, uint32_t node_index,
                 const PeerLimits& limits, OnMessage on_message, OnEnd on_end,
                 OnMajority on_majority);

  // Opens the stream and sends `join`, to which it adds the addresses of both ends. Call this once,
  // or again after Leave(). Without `redial`, the stream ends when its connection breaks.
  void Join(const RendezvousRoute& route, pb::Join join, Redial redial);
  // Stops receiving and sending messages.
  void Leave();
  // Looks for a silent rendezvous again, and continues on the new connection once there is one.
  // After a network outage, TCP sends again only when its retransmission timer expires, which
  // doubles each time, so a new connection is faster. Does nothing while a search is in progress,
  // or without `redial`.
  void Refresh();
  // Returns the address at which this node reaches the rendezvous; empty if the rendezvous is in
  // this process.
  const std::string& address() const { return address_; }

  // Sends a message of the attempt. Does nothing before Join() and after the end of the stream.
  void Send(uint64_t attempt, pb::AgentMessage message);

  // Sets the content of the next heartbeats, which is used until the next call. Heartbeats are thus
  // also sent while the loop is blocked, so that the ranks do not seem to be blocked.
  void SetBeat(uint64_t attempt, std::vector<pb::RankProgress> ranks,
               std::vector<pb::Stillness> stillness);
  // Sends a heartbeat with the content of SetBeat(). Does nothing before Join(). Thread-safe.
  void Beat();

  // Returns the round trip of the newest answered heartbeat in microseconds; 0 before the first
  // answer.
  uint64_t round_trip_us() const { return round_trip_us_; }

 private:
  pb::AgentMessage WithSender(uint64_t attempt, pb::AgentMessage message) const;
  // Opens a connection and sends the messages `first` before any other message.
  void Open(const RendezvousRoute& route, std::vector<pb::AgentMessage> first);
  // Handles a heartbeat on the thread on which it arrives, because the loop may be busy.
  void TakeHeartbeat(const pb::Heartbeat& heartbeat);
  void Take(const pb::RendezvousMessage& message);
  void OnConnectionEnd(const std::string& why);
  void ResumeOver(const RendezvousRoute& route);
  void SwapClient(std::unique_ptr<RendezvousClient> client);

  asio::io_context& loop_;
  const std::string job_id_;
  const uint32_t node_index_;
  const PeerLimits limits_;
  const OnMessage on_message_;
  const OnEnd on_end_;
  const OnMajority on_majority_;
  // Number of calls of Open() and Leave(). Results of older connections are ignored.
  uint64_t connection_ = 0;
  Redial redial_;
  uint64_t stream_token_ = 0;  // token for resuming the stream; 0 if impossible
  std::shared_ptr<const std::atomic<bool>> broke_;  // set to true once the connection's route broke
  Unacknowledged<pb::AgentMessage> sent_;
  ReceivedNumbers received_;
  std::string address_;
  std::atomic<uint64_t> round_trip_us_ = 0;
  // Clock of the rendezvous in its newest heartbeat; 0 before the first heartbeat.
  std::atomic<uint64_t> rendezvous_clock_us_ = 0;
  Mutex beat_mutex_;
  pb::AgentMessage next_beat_ DSL_GUARDED_BY(beat_mutex_);
  // Only the loop's thread writes this member, with beat_mutex_ held, so it reads it without the
  // mutex.
  std::unique_ptr<RendezvousClient> client_;
  bool is_refreshing_ = false;
  // The client that Refresh() replaced. Its end would count as the end of this node, so it is kept
  // until the rendezvous sends a message over client_.
  std::unique_ptr<RendezvousClient> replaced_;
};

}  // namespace dslaunch
