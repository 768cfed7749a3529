#include "agent/node/rank_link_core.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

using Kind = RankLinkMessage::Kind;

RankLinkActions One(RankLinkAction action) {
  RankLinkActions actions;
  actions.push_back(std::move(action));
  return actions;
}

RankLinkAction LinkTo(uint64_t session, RankLinkMessage message, UniqueFd fd) {
  message.kind = Kind::kLink;
  message.text.clear();
  return rank_link_action::Send{session, std::move(message), std::move(fd)};
}

// Returns the message's label if only a service uses this label; empty otherwise.
std::string_view ServiceOf(const RankLinkMessage& message) {
  for (const std::string_view service : {kPmixLinkLabel, kMemoryLinkLabel}) {
    if (message.label == service) return service;
  }
  return {};
}

}  // namespace

RankLinkActions RankLinkCore::OnAttempt(RankLinkPlan plan) {
  plan_ = std::move(plan);
  RankLinkActions actions;
  for (const auto& [session, speaker] : speaker_of_)
    actions.push_back(rank_link_action::Close{session, "its attempt is over"});
  speaker_of_.clear();
  session_of_.clear();
  std::erase_if(waiting_, [this](const Waiting& waiting) {
    const RankLinkMessage& message = waiting.message;
    return message.attempt < plan_.attempt ||
           (message.attempt == plan_.attempt && !IsOn(waiting.node, message.from));
  });
  return actions;
}

RankLinkActions RankLinkCore::OnMessage(uint64_t session, const RankLinkMessage& message,
                                        const std::string& endpoints) {
  const bool is_known = speaker_of_.contains(session);
  if (message.kind == Kind::kHello && !is_known) return OnHello(session, message, endpoints);
  if (message.kind == Kind::kDial && is_known) return OnDial(session, message);
  OnSessionEnd(session);
  return One(rank_link_action::Close{session, "it sent a message out of turn"});
}

RankLinkActions RankLinkCore::OnHello(uint64_t session, const RankLinkMessage& message,
                                      const std::string& endpoints) {
  const uint32_t rank = message.from;
  if (message.attempt != plan_.attempt || !IsLocal(rank)) {
    return One(rank_link_action::Close{
        session, "it says that it is rank " + std::to_string(rank) + " of attempt " +
                     std::to_string(message.attempt) + ", which does not run on this node"});
  }
  const Speaker speaker = {rank, ServiceOf(message)};
  speaker_of_[session] = speaker;
  session_of_[speaker] = session;
  RankLinkMessage welcome;
  welcome.kind = Kind::kWelcome;
  welcome.to = rank;
  welcome.node = node_;
  welcome.attempt = plan_.attempt;
  welcome.text = endpoints;
  RankLinkActions actions = One(rank_link_action::Send{session, std::move(welcome), UniqueFd()});
  std::deque<Waiting> others;
  for (Waiting& waiting : waiting_) {
    if (Speaker{waiting.message.to, ServiceOf(waiting.message)} == speaker &&
        waiting.message.attempt == plan_.attempt) {
      actions.push_back(LinkTo(session, std::move(waiting.message), std::move(waiting.fd)));
    } else {
      others.push_back(std::move(waiting));
    }
  }
  waiting_ = std::move(others);
  return actions;
}

RankLinkActions RankLinkCore::OnDial(uint64_t session, RankLinkMessage message) {
  message.from = speaker_of_.at(session).rank;
  message.attempt = plan_.attempt;
  const RankBlock* const peers = plan_.ranks.BlockOfRank(message.to);
  if (peers == nullptr || message.to == message.from) {
    return OnFailed(session, message,
                    "there is no other rank " + std::to_string(message.to) + " in this job");
  }
  if (IsLocal(message.to)) return One(rank_link_action::ConnectHere{session, std::move(message)});
  if (message.text.empty() && message.to == 0) {
    message.node = peers->node_index;
    message.text = plan_.rank_0_endpoint;
  }
  const std::string rank = "rank " + std::to_string(message.to);
  if (message.text.empty())
    return OnFailed(session, message, rank + " did not say where its node is");
  if (message.node != peers->node_index) {
    return OnFailed(session, message,
                    rank + " runs on node " + std::to_string(peers->node_index) +
                        ", but what it says of its place is of node " +
                        std::to_string(message.node));
  }
  return One(rank_link_action::ConnectTo{session, std::move(message)});
}

void RankLinkCore::OnSessionEnd(uint64_t session) {
  const auto found = speaker_of_.find(session);
  if (found == speaker_of_.end()) return;
  const auto newest = session_of_.find(found->second);
  if (newest != session_of_.end() && newest->second == session) session_of_.erase(newest);
  speaker_of_.erase(found);
}

size_t RankLinkCore::service_sessions() const {
  return static_cast<size_t>(std::ranges::count_if(
      speaker_of_, [](const auto& one) { return !one.second.service.empty(); }));
}

bool RankLinkCore::IsOn(uint32_t node, uint32_t rank) const {
  const RankBlock* const block = plan_.ranks.BlockOfRank(rank);
  return block != nullptr && block->node_index == node;
}

RankLinkActions RankLinkCore::OnIncoming(const RankLinkMessage& message, uint32_t node,
                                         UniqueFd fd) {
  if (message.kind != Kind::kDial || message.attempt < plan_.attempt) return {};
  if (message.attempt == plan_.attempt) {
    if (!IsOn(node, message.from)) {
      return One(rank_link_action::LogRefusal{"node " + std::to_string(node) +
                                              " says that it has rank " +
                                              std::to_string(message.from)});
    }
    if (!IsLocal(message.to)) return {};
    const auto session = session_of_.find(Speaker{message.to, ServiceOf(message)});
    if (session != session_of_.end()) return One(LinkTo(session->second, message, std::move(fd)));
  }
  if (waiting_.size() < kMaxWaiting) waiting_.push_back({message, node, std::move(fd)});
  return {};
}

RankLinkActions RankLinkCore::OnConnected(uint64_t session, const RankLinkMessage& message,
                                          UniqueFd fd) {
  if (!speaker_of_.contains(session)) return {};
  return One(LinkTo(session, message, std::move(fd)));
}

RankLinkActions RankLinkCore::OnFailed(uint64_t session, const RankLinkMessage& message,
                                       std::string why) {
  if (!speaker_of_.contains(session)) return {};
  RankLinkMessage failed = message;
  failed.kind = Kind::kFailed;
  failed.text = std::move(why);
  return One(rank_link_action::Send{session, std::move(failed), UniqueFd()});
}

}  // namespace dslaunch
