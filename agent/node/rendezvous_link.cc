#include "agent/node/rendezvous_link.h"

#include <asio/post.hpp>
#include <chrono>
#include <random>
#include <utility>

#include "net/addresses.h"

namespace dslaunch {
namespace {

// Returns this machine's clock in microseconds, which heartbeats carry to the rendezvous and back.
uint64_t NowUs() { return static_cast<uint64_t>(BootClock::now().time_since_epoch().count()); }

// Returns a random token that is never 0.
uint64_t DrawToken() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

RendezvousLink::RendezvousLink(asio::io_context& loop, std::string job_id, uint32_t node_index,
                               const PeerLimits& limits, OnMessage on_message, OnEnd on_end,
                               OnMajority on_majority)
    : loop_(loop),
      job_id_(std::move(job_id)),
      node_index_(node_index),
      limits_(limits),
      on_message_(std::move(on_message)),
      on_end_(std::move(on_end)),
      on_majority_(std::move(on_majority)) {}

void RendezvousLink::Join(const RendezvousRoute& route, pb::Join join, Redial redial) {
  address_ = route.address;
  redial_ = std::move(redial);
  sent_ = {};
  received_ = {};
  rendezvous_clock_us_ = 0;
  stream_token_ = redial_ ? DrawToken() : 0;
  join.set_stream_token(stream_token_);
  join.set_reached_at(address_);
  if (!address_.empty()) join.set_address(LocalAddressTowards(address_));
  pb::AgentMessage message;
  *message.mutable_join() = std::move(join);
  message = WithSender(0, std::move(message));
  if (stream_token_ != 0) sent_.Keep(message);
  SetBeat(0, {}, {});
  Open(route, {std::move(message)});
}

void RendezvousLink::Open(const RendezvousRoute& route, std::vector<pb::AgentMessage> first) {
  const uint64_t connection = ++connection_;
  broke_ = route.broke;
  auto client = std::make_unique<RendezvousClient>(
      route.channel,
      [this, connection](pb::RendezvousMessage message) {
        if (message.has_heartbeat()) TakeHeartbeat(message.heartbeat());
        const Result<void> checked = CheckRendezvousMessage(message, limits_);
        asio::post(loop_, [this, connection, checked, message = std::move(message)] {
          if (connection != connection_) return;
          if (checked.ok()) return Take(message);
          ++connection_;  // results of the old connection are now ignored
          on_end_("it sent " + checked.error().message);
        });
      },
      [this, connection](std::string why) {
        asio::post(loop_, [this, connection, why = std::move(why)] {
          if (connection == connection_) OnConnectionEnd(why);
        });
      });
  // These messages must precede all heartbeats, so they are sent before SwapClient().
  for (pb::AgentMessage& message : first) client->Send(std::move(message));
  SwapClient(std::move(client));
}

void RendezvousLink::TakeHeartbeat(const pb::Heartbeat& heartbeat) {
  const uint64_t now_us = NowUs();
  if (heartbeat.sent_us() == 0 || heartbeat.sent_us() > now_us) return;
  round_trip_us_ = now_us - heartbeat.sent_us();
  if (heartbeat.rendezvous_clock_us() != 0) rendezvous_clock_us_ = heartbeat.rendezvous_clock_us();
  if (!heartbeat.has_majority_age_us()) return;
  on_majority_(BootClock::time_point(ReportedMicroseconds(heartbeat.sent_us())),
               ReportedMicroseconds(heartbeat.majority_age_us()));
}

void RendezvousLink::Take(const pb::RendezvousMessage& message) {
  replaced_.reset();
  if (!received_.Accept(message.number())) return;
  sent_.Acknowledge(message.heartbeat().received());
  on_message_(message);
}

// Resumes the stream if only its route broke. If the connection ended in another way, the
// rendezvous has ended the stream, so the end is reported at once.
void RendezvousLink::OnConnectionEnd(const std::string& why) {
  if (stream_token_ == 0 || !broke_ || !*broke_) return on_end_(why);
  const uint64_t connection = ++connection_;
  redial_([this, connection, why](const Result<RendezvousRoute>& route) {
    if (connection != connection_) return;
    if (!route.ok()) return on_end_(why + "; " + route.error().message);
    ResumeOver(*route);
  });
}

void RendezvousLink::ResumeOver(const RendezvousRoute& route) {
  pb::AgentMessage resume;
  resume.mutable_resume()->set_stream_token(stream_token_);
  resume.mutable_resume()->set_received(received_.newest());
  std::vector<pb::AgentMessage> first = {WithSender(0, std::move(resume))};
  first.insert(first.end(), sent_.kept().begin(), sent_.kept().end());
  Open(route, std::move(first));
}

void RendezvousLink::Refresh() {
  if (stream_token_ == 0 || replaced_ || std::exchange(is_refreshing_, true)) return;
  redial_([this, connection = connection_](const Result<RendezvousRoute>& route) {
    is_refreshing_ = false;
    if (connection != connection_ || !route.ok()) return;
    {
      const MutexLock lock(beat_mutex_);
      replaced_ = std::move(client_);
    }
    ResumeOver(*route);
  });
}

void RendezvousLink::Leave() {
  ++connection_;
  SwapClient(nullptr);
  replaced_.reset();
}

void RendezvousLink::SwapClient(std::unique_ptr<RendezvousClient> client) {
  {
    const MutexLock lock(beat_mutex_);
    client_.swap(client);
  }
  client.reset();  // runs without the lock, because the destructor waits for pending calls
}

void RendezvousLink::Send(uint64_t attempt, pb::AgentMessage message) {
  if (!client_) return;
  message = WithSender(attempt, std::move(message));
  if (stream_token_ != 0) sent_.Keep(message);
  client_->Send(std::move(message));
}

pb::AgentMessage RendezvousLink::WithSender(uint64_t attempt, pb::AgentMessage message) const {
  message.set_job_id(job_id_);
  message.set_attempt(attempt);
  message.set_node_index(node_index_);
  return message;
}

void RendezvousLink::SetBeat(uint64_t attempt, std::vector<pb::RankProgress> ranks,
                             std::vector<pb::Stillness> stillness) {
  pb::AgentMessage message;
  pb::Heartbeat& heartbeat = *message.mutable_heartbeat();
  heartbeat.set_received(received_.newest());
  for (pb::RankProgress& rank : ranks) *heartbeat.add_ranks() = std::move(rank);
  for (pb::Stillness& rank : stillness) *heartbeat.add_stillness() = std::move(rank);
  message = WithSender(attempt, std::move(message));
  const MutexLock lock(beat_mutex_);
  next_beat_ = std::move(message);
}

void RendezvousLink::Beat() {
  const MutexLock lock(beat_mutex_);
  if (!client_) return;
  next_beat_.mutable_heartbeat()->set_sent_us(NowUs());
  next_beat_.mutable_heartbeat()->set_rendezvous_clock_us(rendezvous_clock_us_);
  client_->Send(next_beat_);
}

}  // namespace dslaunch
