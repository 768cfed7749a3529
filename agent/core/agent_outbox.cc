#include "agent/core/agent_outbox.h"

namespace dslaunch {

void AgentOutbox::Notify(std::string text, pb::Notice::Standstill standstill) {
  Log(text);
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::move(text));
  event.mutable_notice()->set_standstill(standstill);
  Emit(std::move(event));
}

void AgentOutbox::SendToSupervisor(pb::SupervisorRequest request) {
  if (has_supervisor_) Do(agent_action::SendToSupervisor{std::move(request)});
}

void AgentOutbox::SendToRendezvous(pb::AgentMessage message) {
  if (!has_rendezvous()) return;
  message.set_attempt(attempt_);
  Do(agent_action::SendToRendezvous{std::move(message)});
}

void AgentOutbox::StopJob(const pb::Cause& cause) {
  Ask(agent_request::NotifyStop{cause});
  Ask(agent_request::Stop{cause});
}

void AgentOutbox::StopCutOff(const pb::Cause& cause) {
  Ask(agent_request::Stop{cause});
  Ask(agent_request::EndRendezvous{});
}

}  // namespace dslaunch
