#include "agent/core/teardown_core.h"

#include <utility>

#include "proto/wire/cause.h"
#include "proto/wire/job_result.h"
#include "rendezvous/majority.h"

namespace dslaunch {
namespace {

// Time for the other nodes to be notified before the agent quits.
constexpr milliseconds kQuitWait(1000);
constexpr milliseconds kCompletedTravels(500);  // time for the rendezvous' last message to arrive
constexpr milliseconds kViewersWait(2000);      // time for viewers to read the last events

}  // namespace

void TeardownCore::NotifyStop(const pb::Cause& cause) const {
  pb::AgentMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  out_.SendToRendezvous(std::move(message));
  if (!out_.has_rendezvous()) out_.OnRendezvousOver();
}

void TeardownCore::OnStop(const pb::Cause& cause, bool kill_now) {
  out_.Log(std::string(kill_now ? "killing" : "stopping") + ": " + CauseText(cause));
  if (workers_.stopping()) return;
  outcome_ = cause;
  pb::NodeEvent event;
  event.mutable_outcome()->set_attempt(workers_.attempt());
  *event.mutable_outcome()->mutable_cause() = cause;
  out_.Emit(std::move(event));
}

void TeardownCore::OnAllReaped(const Left& left) {
  out_.Log(left.empty() ? "every process is reaped" : "processes are left that could not be ended");
  *done_.mutable_left() = left;
}

void TeardownCore::OnTornDown(Clock::time_point now) {
  // Without a front end, this node stores the final status of the job, so it waits as long as the
  // other nodes may need to end.
  quit_at_ = now + (front_end_.detached() ? EmptyingLimit(job_.timeouts()) : kQuitWait);
  pb::AgentMessage message;
  *message.mutable_torn_down()->mutable_left() = done_.left();
  message.mutable_torn_down()->set_saved(workers_.ranks().AllSaved());
  out_.SendToRendezvous(std::move(message));
  // A node that leaves does not wait for the end of the job, because the job continues without it.
  if (outcome_.kind() == pb::Cause::NODE_LEFT) out_.OnRendezvousOver();
  EndIfAllIsReported();
  QuitIfIdle(now);
}

void TeardownCore::OnCompleted(const pb::Completed& completed, Clock::time_point now) {
  done_.set_completed(true);
  Complete(completed, now);
}

void TeardownCore::Complete(const pb::Completed& completed, Clock::time_point now) {
  if (!out_.OnRendezvousOver()) return;
  completed_at_ = now;
  out_.Log(completed.teardown_complete() ? "every node confirmed its teardown"
                                         : "not every node confirmed its teardown");
  done_.set_teardown_complete(completed.teardown_complete());
  *done_.mutable_cause() = completed.cause();
  *done_.mutable_members() = completed.members();
  *done_.mutable_victims() = completed.victims();
  done_.set_saved(completed.saved());
  EndIfAllIsReported();
  QuitIfIdle(now);
}

void TeardownCore::QuitIfIdle(Clock::time_point now) {
  if (!front_end_.gone() || quits_) return;
  if (job_.prepared()) {
    const bool is_known = out_.is_rendezvous_over() || (quit_at_ && now >= *quit_at_);
    if (workers_.phase() != WorkersCore::Phase::kTornDown || !is_known) return;
    // A front end that detaches does not read events, even if the last event was already being
    // sent, so the result is written to a file.
    if (front_end_.detached() || !front_end_.readers().front_end_has_all) WriteResult();
    if (!MayQuit(now)) return;
  }
  quits_ = true;
  out_.Do(agent_action::Quit());
}

// Returns whether the other processes have received all data that they need from this agent.
bool TeardownCore::MayQuit(Clock::time_point now) const {
  // The answer to Detach may still be in transit, so the agent waits.
  if (front_end_.detached() && now - *front_end_.detached_at() < kCompletedTravels) return false;
  if (!completed_at_ || !front_end_.detached()) return true;
  const Clock::duration passed = now - *completed_at_;
  if (membership_.is_host() && passed < kCompletedTravels) return false;
  return !front_end_.readers().has_viewers || passed >= kViewersWait;
}

void TeardownCore::WriteResult() {
  if (std::exchange(result_written_, true)) return;
  out_.Do(agent_action::EndEvents{done_});
  out_.Do(agent_action::WriteResult{MakeJobResult(job_.spec().job_id(), outcome_, done_)});
}

// Sends the last event if the node is torn down and the rendezvous is over.
void TeardownCore::EndIfAllIsReported() const {
  if (workers_.phase() == WorkersCore::Phase::kTornDown && out_.is_rendezvous_over())
    out_.Do(agent_action::EndEvents{done_});
}

}  // namespace dslaunch
