#include "agent/core/front_end_core.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

constexpr milliseconds kSupervisorReportsWithin(1000);
// Limit of the wait for the front end to exit after the last event was sent.
constexpr milliseconds kGoodbyeWithin(30'000);
constexpr milliseconds kUnpreparedLease(10'000);
constexpr milliseconds kUnpreparedLook(500);
// Number of renewals after which the front end counts as silent. It sends renewals as often as
// heartbeats.
constexpr int kRenewalsMissed = 3;

}  // namespace

FrontEndCore::FrontEndCore(const NodeJob& job, AgentOutbox& out, BootClock::time_point now)
    : job_(job),
      out_(out),
      lease_(
          {.length = kUnpreparedLease, .look_every = kUnpreparedLook, .prompt = kUnpreparedLease},
          now) {}

void FrontEndCore::OnDetach(const std::string& socket_path, Clock::time_point now) {
  out_.Log("detached: the job no longer needs its front end; " + socket_path);
  pb::SupervisorRequest request;
  request.mutable_detach();
  out_.SendToSupervisor(std::move(request));
  gone_ = true;
  SetLease(milliseconds(0));
  detached_at_ = now;
  out_.Do(agent_action::DetachFrontEnd());
}

void FrontEndCore::OnStreamOver(Clock::time_point now) {
  if (detached()) return;
  if (!stream_over_at_) stream_over_at_ = now;
  out_.Do(agent_action::DetachFrontEnd());
}

// A single node cannot distinguish a broken connection from a killed front end. The rendezvous
// receives heartbeats of all nodes and can distinguish them, so the node reports its connection and
// waits. A node without a rendezvous does not wait for its front end.
void FrontEndCore::OnConnection(bool is_broken) {
  is_link_broken_ = is_broken;
  out_.Log(is_broken ? "the connection to the front end broke; it may come back"
                     : "the front end is connected again");
  if (!out_.has_rendezvous()) return OnUnreachable();
  pb::AgentMessage message;
  message.mutable_front_end_connection()->set_is_broken(is_broken);
  out_.SendToRendezvous(std::move(message));
}

void FrontEndCore::OnUnreachable() const {
  if (!is_link_broken_) return;
  pb::SupervisorRequest request;  // empty, so that the supervisor ends all processes
  request.mutable_no_front_end();
  out_.SendToSupervisor(std::move(request));
}

void FrontEndCore::OnGone() {
  if (std::exchange(gone_, true)) return;
  out_.Log("the front end is gone");
  out_.Do(agent_action::DetachFrontEnd());
  if (readers_.front_end_has_all || !job_.prepared()) return out_.Ask(agent_request::QuitIfIdle{});
  out_.Ask(agent_request::LeaveToOthers());
  // Only this node has lost its connection. The other nodes may still have their front end, which
  // can report the cause, so it is sent to the rendezvous.
  out_.Ask(agent_request::NotifyStop{
      job_.Cause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                 job_.node_name() + " was lost: " +
                     (job_.own() ? "its command has ended"
                                 : "its front end vanished, or the connection to it broke"))});
  out_.Ask(agent_request::Stop{
      job_.Cause(pb::Cause::FRONT_END_LOST, ExitCode::kUnavailable, "the front end vanished")});
  out_.Ask(agent_request::QuitIfIdle{});
}

// The supervisor carried the front end's connection, so the front end is lost too.
void FrontEndCore::OnSupervisorGone() {
  gone_ = true;
  out_.Do(agent_action::DetachFrontEnd());
}

void FrontEndCore::OnCutOff() {
  const pb::Timeouts& timeouts = job_.timeouts();
  if (!detached()) SetLease(milliseconds(std::min(timeouts.lease_ms(), timeouts.dead_ms())));
}

void FrontEndCore::OnTick(Clock::time_point now, BootClock::time_point boot_now) {
  if (lease_.Left(boot_now) == milliseconds(0)) OnGone();
  const milliseconds patience =
      readers_.front_end_has_all ? kGoodbyeWithin : kSupervisorReportsWithin;
  if (job_.prepared() && stream_over_at_ && now - *stream_over_at_ >= patience) OnGone();
}

pb::RenewReply FrontEndCore::Renew(const pb::RenewRequest& request, BootClock::time_point now) {
  pb::RenewReply reply;
  reply.set_clock_us(lease_.Renew(
      request.has_last_seen_us() ? std::optional(request.last_seen_us()) : std::nullopt, now));
  return reply;
}

bool FrontEndCore::IsUnasked(BootClock::time_point now) const {
  return now - lease_.renewed() >= kRenewalsMissed * milliseconds(job_.timeouts().heartbeat_ms());
}

void FrontEndCore::SetLease(milliseconds length) {
  const pb::Timeouts& timeouts = job_.timeouts();
  lease_.SetTerms({.length = length,
                   .look_every = milliseconds(timeouts.heartbeat_ms()) / 2,
                   .prompt = milliseconds(timeouts.dead_ms())});
}

}  // namespace dslaunch
