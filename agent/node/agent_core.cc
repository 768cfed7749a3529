#include "agent/node/agent_core.h"

#include <algorithm>
#include <utility>

#include "proto/contract/job_id.h"
#include "proto/wire/cause.h"
#include "rendezvous/majority.h"

namespace dslaunch {
namespace {

constexpr milliseconds kDefaultTick(500);
constexpr milliseconds kSupervisorTellsWithin(1000);
constexpr milliseconds kGoodbyeWithin(30'000);  // of a front end that knows that all is done
constexpr int kLoopPatience = 5;                // times dead_ms, or the lease; as disks may take
constexpr milliseconds kUnpreparedLease(10'000);
constexpr int kRenewalsMissed = 3;  // a front end renews as often as there are heartbeats

}  // namespace

AgentCore::AgentCore(const AgentCoreOptions& options, BootClock::time_point now)
    : options_(options),
      lease_({.length = kUnpreparedLease, .look_every = kDefaultTick, .prompt = kUnpreparedLease},
             now),
      majority_lease_({}, now) {}

// --- The front end ---

bool AgentCore::OnOwn(const pb::OwnPart& part) {
  if (own_ || prepared_) return false;
  own_ = part;
  return true;
}

// Where this node's own command decides what runs here, nothing of it comes from the front end.
Result<void> AgentCore::PutInOwnPart(pb::PrepareRequest& request, const NodeTable& nodes) const {
  if (!own_) return {};
  // Both become parts of paths.
  bool bad_name = false;
  for (uint32_t index = 0; index < nodes.size(); ++index)
    bad_name |= nodes.At(index).name().find_first_not_of('.') == std::string::npos;
  const bool has_node = request.node_index() < nodes.size();
  const bool bad_slots = has_node && nodes.SlotsOf(request.node_index()) != own_->slots();
  if (bad_name || bad_slots || !IsJobId(request.job().job_id()))
    return Error{ExitCode::kNoPermission, "the front end sent a job that is not this command's"};
  pb::JobSpec& job = *request.mutable_job();
  *job.mutable_ranks() = own_->ranks();
  job.clear_copies();
  job.set_detachable(false);
  job.clear_rank_stdin();
  request.clear_devices();
  request.mutable_credentials()->set_private_key(own_->private_key());
  return {};
}

Result<void> AgentCore::OnPrepare(pb::PrepareRequest request) {
  if (prepared_) return Error{ExitCode::kInternal, "the agent was prepared twice"};
  DSL_TRY_ASSIGN(NodeTable nodes, NodeTable::Read(request.job().nodes()));
  DSL_TRY(PutInOwnPart(request, nodes));
  if (request.node_index() >= nodes.size() || request.rendezvous_node() >= nodes.size() ||
      request.job().ranks().program().argv_size() == 0) {
    return Error{ExitCode::kInternal, "the front end sent an incomplete job"};
  }
  prepare_ = std::move(request);
  nodes_ = std::move(nodes);
  own_node_ = nodes_.At(prepare_.node_index());
  return {};
}

AgentActions AgentCore::OnPrepared() {
  prepared_ = true;
  hosts_rendezvous_ = prepare_.node_index() == prepare_.rendezvous_node();
  const pb::Timeouts& timeouts = prepare_.job().timeouts();
  SetLease(milliseconds(timeouts.lease_ms()));
  PrepareElection();
  pb::SupervisorRequest request;
  pb::Configure& configure = *request.mutable_configure();
  configure.set_job_id(prepare_.job().job_id());
  configure.set_grace_ms(timeouts.grace_ms());
  configure.set_teardown_ms(timeouts.teardown_ms());
  configure.set_agent_dead_ms(timeouts.dead_ms());
  configure.set_stop_signal(prepare_.job().stop_signal());
  SendToSupervisor(std::move(request));
  const auto patience =
      std::max(kLoopPatience * milliseconds(timeouts.dead_ms()), milliseconds(timeouts.lease_ms()));
  // Two ticks make a heartbeat; each tick is one where so few fit into the patience of the others
  // that one late heartbeat would count.
  const bool is_tight = 2 * timeouts.heartbeat_ms() > timeouts.suspect_ms();
  Do(agent_action::StartHeart{
      .interval = tick_interval(), .patience = patience, .ticks_per_beat = is_tight ? 1u : 2u});
  return Take();
}

AgentActions AgentCore::OnRun(std::vector<std::string> rendezvous_endpoints,
                              Clock::time_point now) {
  rendezvous_endpoints_ = std::move(rendezvous_endpoints);
  if (!stopping()) GoToRendezvous(now);  // else before it ran
  return Take();
}

AgentActions AgentCore::OnStop(pb::Cause cause, bool kill_now) {
  if (cause.kind() == pb::Cause::NODE_LEFT) {
    cause.set_node_index(prepare_.node_index());
    LeaveRendezvousToOthers();
  }
  StopJob(cause, kill_now);
  return Take();
}

AgentActions AgentCore::OnSignal(int signal_number) {
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(signal_number);
  SendToSupervisor(std::move(request));
  return Take();
}

AgentActions AgentCore::OnDetach(const std::string& socket_path, Clock::time_point now,
                                 BootClock::time_point boot_now) {
  if (detached()) return {};
  Log("detached: the job no longer needs its front end; " + socket_path);
  pb::SupervisorRequest request;
  request.mutable_detach();
  SendToSupervisor(std::move(request));
  front_end_gone_ = true;
  SetLease(milliseconds(0));
  detached_at_ = now;
  lease_seen_ = now;
  majority_lease_.Begin(boot_now);
  Do(agent_action::DetachFrontEnd());
  // No front end names another rendezvous any more.
  if (failover_by_ && MayElect()) AwaitElection(lost_by_, now);
  return Take();
}

AgentActions AgentCore::OnStreamOver(Clock::time_point now) {
  if (detached()) return {};
  if (!stream_over_at_) stream_over_at_ = now;
  Do(agent_action::DetachFrontEnd());
  return Take();
}

AgentActions AgentCore::OnViewerOver(Clock::time_point now) {
  QuitIfIdle(now);
  return Take();
}

// --- Time ---

pb::RenewReply AgentCore::Renew(const pb::RenewRequest& request, BootClock::time_point now) {
  pb::RenewReply reply;
  reply.set_clock_us(lease_.Renew(
      request.has_last_seen_us() ? std::optional(request.last_seen_us()) : std::nullopt, now));
  return reply;
}

pb::AgentAlive AgentCore::Alive(BootClock::time_point now) {
  pb::AgentAlive alive;
  if (const auto left = lease_.Left(now))
    alive.set_lease_left_ms(static_cast<uint32_t>(left->count()));
  if (!lease_counts_) return alive;
  if (const auto left = majority_lease_.Left(now))
    alive.set_majority_lease_left_ms(static_cast<uint32_t>(left->count()));
  return alive;
}

bool AgentCore::IsUnasked(BootClock::time_point now) const {
  return now - lease_.renewed() >=
         kRenewalsMissed * milliseconds(prepare_.job().timeouts().heartbeat_ms());
}

void AgentCore::OnMajority(BootClock::time_point sent, std::chrono::microseconds age,
                           BootClock::time_point now) {
  const auto since = std::max(sent.time_since_epoch() - age, std::chrono::microseconds(0));
  majority_lease_.Renew(static_cast<uint64_t>(since.count()), now);
}

AgentActions AgentCore::OnTick(Clock::time_point now, BootClock::time_point boot_now,
                               Clock::duration late) {
  prepared_ ? CheckSilence(now, boot_now, late > kStall) : CheckLease(now, boot_now);
  CheckMpi(now);
  QuitIfIdle(now);
  return Take();
}

milliseconds AgentCore::tick_interval() const {
  return prepared_ ? milliseconds(prepare_.job().timeouts().heartbeat_ms()) / 2 : kDefaultTick;
}

void AgentCore::CheckSilence(Clock::time_point now, BootClock::time_point boot_now, bool was_late) {
  if (was_late) last_seen_ = now;  // what was sent meanwhile still waits to be read
  if (joined_ && !completed_ && now - last_seen_ >= SilenceLimit(prepare_.job().timeouts()))
    LoseRendezvous("no heartbeat", now);
  if (failover_by_ && now >= *failover_by_) {
    failover_by_.reset();
    BeginStop(lost_by_);
    OnCompleted({}, now);
  }
  CheckLease(now, boot_now);
  const milliseconds patience =
      readers_.front_end_has_all ? kGoodbyeWithin : kSupervisorTellsWithin;
  if (stream_over_at_ && now - *stream_over_at_ >= patience) OnFrontEndGone(now);
  CheckMajority(now, boot_now);
  if (is_electing_ && !stopping()) CarryOut(election_->OnTick(now), now);
}

void AgentCore::CheckLease(Clock::time_point now, BootClock::time_point boot_now) {
  if (lease_.Left(boot_now) == milliseconds(0)) OnFrontEndGone(now);
}

void AgentCore::SetLease(milliseconds length) {
  const pb::Timeouts& timeouts = prepare_.job().timeouts();
  lease_.SetTerms({.length = length,
                   .look_every = milliseconds(timeouts.heartbeat_ms()) / 2,
                   .prompt = milliseconds(timeouts.dead_ms())});
}

// --- Small things ---

void AgentCore::Notify(std::string text) {
  Log(text);
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::move(text));
  Emit(std::move(event));
}

void AgentCore::SendToRendezvous(pb::AgentMessage message) {
  if (!joined_ || completed_) return;
  message.set_attempt(attempt_);
  Do(agent_action::SendToRendezvous{std::move(message)});
}

void AgentCore::SendToSupervisor(pb::SupervisorRequest request) {
  if (!supervisor_gone_) Do(agent_action::SendToSupervisor{std::move(request)});
}

void AgentCore::StopWorkers(bool kill_now, int signal) {
  EndHeldWorkers();
  pb::SupervisorRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  request.mutable_stop()->set_signal(signal);
  SendToSupervisor(std::move(request));
}

pb::Cause AgentCore::OwnCause(pb::Cause::Kind kind, ExitCode code, std::string message) const {
  return MakeCause(kind, prepare_.node_index(), code, std::move(message));
}

std::string AgentCore::Describe(const AttemptWorker& worker) const {
  return "rank " + std::to_string(worker.rank) + " (" + node_name() + ", pid " +
         std::to_string(worker.pid) + ")";
}

}  // namespace dslaunch
