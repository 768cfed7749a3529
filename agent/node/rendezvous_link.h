// An agent's stream to the rendezvous: adds the sender to messages, sends heartbeats, and measures
// the round trip. A broken connection is made again, and the stream resumes.
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

// All on the loop's thread, but for Beat.
class RendezvousLink {
 public:
  // Called on the loop's thread; on_end once for each Join, last, unless it was left.
  using OnMessage = std::function<void(const pb::RendezvousMessage&)>;
  using OnEnd = std::function<void(const std::string& why)>;
  // The answer to the heartbeat that was sent at `sent` says how long before it a majority was
  // there (rendezvous/majority.h). On gRPC's threads, where the answer arrives.
  using OnMajority = std::function<void(BootClock::time_point sent, std::chrono::microseconds age)>;
  // Looks for the rendezvous once more, without blocking; calls `then` on the loop's thread.
  using Redial = std::function<void(std::function<void(Result<RendezvousRoute>)> then)>;

  // A message that does not keep `limits` (proto/wire/peer_check.h) counts as the stream's end.
  RendezvousLink(asio::io_context& loop, std::string job_id, uint32_t node_index,
                 const PeerLimits& limits, OnMessage on_message, OnEnd on_end,
                 OnMajority on_majority);

  // Opens the stream and sends `join`, to which it adds the addresses of both ends. Once, or
  // again after Leave. Without `redial` the stream ends when its connection breaks.
  void Join(const RendezvousRoute& route, pb::Join join, Redial redial);
  // Nothing more is received or sent.
  void Leave();
  // Looks for a silent rendezvous once more, and continues over the new
  // connection once there is one: after a cut TCP sends again only when its timer ends, which it
  // has doubled each time. Void while that is under way, and without `redial`.
  void Refresh();
  // Returns the rendezvous' address as this node reaches it; empty: in this process.
  const std::string& address() const { return address_; }

  // Void before Join and when the stream has ended.
  void Send(uint64_t attempt, pb::AgentMessage message);

  // The content of the next heartbeats, until this is called again: while the loop is blocked, the
  // ranks must not look blocked too.
  void SetBeat(uint64_t attempt, std::vector<pb::RankProgress> ranks,
               std::vector<pb::Stillness> stillness);
  // Sends a heartbeat; void before Join. Thread-safe.
  void Beat();

  // Returns the round trip of the newest answered heartbeat; 0: none yet.
  uint64_t round_trip_us() const { return round_trip_us_; }

 private:
  pb::AgentMessage WithSender(uint64_t attempt, pb::AgentMessage message) const;
  // Opens a connection that sends `first` before all else.
  void Open(const RendezvousRoute& route, std::vector<pb::AgentMessage> first);
  // At once, where it arrives: the loop may be busy.
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
  uint64_t connection_ = 0;  // counts Open and Leave; results of older ones are ignored
  Redial redial_;
  uint64_t stream_token_ = 0;                       // token of a stream that can be resumed
  std::shared_ptr<const std::atomic<bool>> broke_;  // whether the connection's route broke
  Unacknowledged<pb::AgentMessage> sent_;
  ReceivedNumbers received_;
  std::string address_;
  std::atomic<uint64_t> round_trip_us_ = 0;
  // Clock in the newest heartbeat; 0 before the first one.
  std::atomic<uint64_t> rendezvous_clock_us_ = 0;
  Mutex beat_mutex_;
  pb::AgentMessage next_beat_ DSL_GUARDED_BY(beat_mutex_);
  // Written with beat_mutex_ held, by the loop's thread alone, which so reads it without.
  std::unique_ptr<RendezvousClient> client_;
  bool is_refreshing_ = false;
  // Replaced by Refresh. Its end would be this node's until the rendezvous knows of client_.
  std::unique_ptr<RendezvousClient> replaced_;
};

}  // namespace dslaunch
