#include "agent/node/rendezvous_link.h"

#include <asio/post.hpp>
#include <chrono>
#include <utility>

#include "net/addresses.h"

namespace dslaunch {
namespace {

// This process's own clock, as heartbeats carry it there and back.
uint64_t NowUs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
          .count());
}

}  // namespace

RendezvousLink::RendezvousLink(asio::io_context& loop, std::string job_id, uint32_t node_index,
                               const PeerLimits& limits, OnMessage on_message, OnEnd on_end)
    : loop_(loop),
      job_id_(std::move(job_id)),
      node_index_(node_index),
      limits_(limits),
      on_message_(std::move(on_message)),
      on_end_(std::move(on_end)) {}

void RendezvousLink::Join(const RendezvousRoute& route, pb::Join join) {
  address_ = route.address;
  const uint64_t attendance = ++attendance_;
  auto client = std::make_unique<RendezvousClient>(
      route.channel,
      [this, attendance](pb::RendezvousMessage message) {
        // Taken here, where the message arrives: the loop may be busy.
        if (message.heartbeat().sent_us() != 0)
          round_trip_us_ = NowUs() - message.heartbeat().sent_us();
        const Result<void> checked = CheckRendezvousMessage(message, limits_);
        asio::post(loop_, [this, attendance, checked, message = std::move(message)] {
          if (attendance != attendance_) return;
          if (checked.ok()) return on_message_(message);
          ++attendance_;  // nothing that comes after it counts
          on_end_("it sent " + checked.error().message);
        });
      },
      [this, attendance](std::string why) {
        asio::post(loop_, [this, attendance, why = std::move(why)] {
          if (attendance == attendance_) on_end_(why);
        });
      });
  join.set_reached_at(address_);
  if (!address_.empty()) join.set_address(LocalAddressTowards(address_));
  pb::AgentMessage message;
  *message.mutable_join() = std::move(join);
  client->Send(WithSender(0, std::move(message)));  // before any beat
  SetBeat(0, {});
  const MutexLock lock(beat_mutex_);
  client_ = std::move(client);
}

void RendezvousLink::Leave() {
  ++attendance_;
  std::unique_ptr<RendezvousClient> client;  // destroyed without the lock: it waits for its end
  const MutexLock lock(beat_mutex_);
  client.swap(client_);
}

void RendezvousLink::Send(uint64_t attempt, pb::AgentMessage message) {
  if (client_) client_->Send(WithSender(attempt, std::move(message)));
}

pb::AgentMessage RendezvousLink::WithSender(uint64_t attempt, pb::AgentMessage message) const {
  message.set_job_id(job_id_);
  message.set_attempt(attempt);
  message.set_node_index(node_index_);
  return message;
}

void RendezvousLink::SetBeat(uint64_t attempt, std::vector<pb::RankProgress> ranks) {
  pb::AgentMessage message;
  pb::Heartbeat& heartbeat = *message.mutable_heartbeat();
  for (pb::RankProgress& rank : ranks) *heartbeat.add_ranks() = std::move(rank);
  message = WithSender(attempt, std::move(message));
  const MutexLock lock(beat_mutex_);
  next_beat_ = std::move(message);
}

void RendezvousLink::Beat() {
  const MutexLock lock(beat_mutex_);
  if (!client_) return;
  next_beat_.mutable_heartbeat()->set_sent_us(NowUs());
  client_->Send(next_beat_);
}

}  // namespace dslaunch
