#include "agent/node/rank_link_core.h"

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

}  // namespace

RankLinkActions RankLinkCore::OnAttempt(RankLinkPlan plan) {
  plan_ = std::move(plan);
  RankLinkActions actions;
  for (const auto& [session, rank] : rank_of_)
    actions.push_back(rank_link_action::Close{session, "its attempt is over"});
  rank_of_.clear();
  session_of_.clear();
  std::erase_if(waiting_,
                [this](const Waiting& waiting) { return waiting.message.attempt < plan_.attempt; });
  return actions;
}

RankLinkActions RankLinkCore::OnMessage(uint64_t session, const RankLinkMessage& message,
                                        const std::string& endpoints) {
  const bool is_known = rank_of_.contains(session);
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
  rank_of_[session] = rank;
  session_of_[rank] = session;
  RankLinkMessage welcome;
  welcome.kind = Kind::kWelcome;
  welcome.to = rank;
  welcome.node = node_;
  welcome.attempt = plan_.attempt;
  welcome.text = endpoints;
  RankLinkActions actions = One(rank_link_action::Send{session, std::move(welcome), UniqueFd()});
  std::deque<Waiting> others;
  for (Waiting& waiting : waiting_) {
    if (waiting.message.to == rank && waiting.message.attempt == plan_.attempt) {
      actions.push_back(LinkTo(session, std::move(waiting.message), std::move(waiting.fd)));
    } else {
      others.push_back(std::move(waiting));
    }
  }
  waiting_ = std::move(others);
  return actions;
}

RankLinkActions RankLinkCore::OnDial(uint64_t session, RankLinkMessage message) {
  message.from = rank_of_.at(session);
  message.attempt = plan_.attempt;
  if (message.to >= plan_.world_size || message.to == message.from) {
    return OnFailed(session, message,
                    "there is no other rank " + std::to_string(message.to) + " in this job");
  }
  if (IsLocal(message.to)) return One(rank_link_action::ConnectHere{session, std::move(message)});
  if (message.text.empty() && message.to == 0) {
    message.node = plan_.rank_0_node;
    message.text = plan_.rank_0_endpoint;
  }
  if (message.text.empty() || message.node == node_) {
    return OnFailed(session, message,
                    "rank " + std::to_string(message.to) + " did not say where its node is");
  }
  return One(rank_link_action::ConnectTo{session, std::move(message)});
}

void RankLinkCore::OnSessionEnd(uint64_t session) {
  const auto found = rank_of_.find(session);
  if (found == rank_of_.end()) return;
  const auto newest = session_of_.find(found->second);
  if (newest != session_of_.end() && newest->second == session) session_of_.erase(newest);
  rank_of_.erase(found);
}

RankLinkActions RankLinkCore::OnIncoming(const RankLinkMessage& message, UniqueFd fd) {
  if (message.kind != Kind::kDial || message.attempt < plan_.attempt) return {};
  if (message.attempt == plan_.attempt) {
    if (!IsLocal(message.to) || message.from >= plan_.world_size) return {};
    const auto session = session_of_.find(message.to);
    if (session != session_of_.end()) return One(LinkTo(session->second, message, std::move(fd)));
  }
  if (waiting_.size() < kMaxWaiting) waiting_.push_back({message, std::move(fd)});
  return {};
}

RankLinkActions RankLinkCore::OnConnected(uint64_t session, const RankLinkMessage& message,
                                          UniqueFd fd) {
  if (!rank_of_.contains(session)) return {};
  return One(LinkTo(session, message, std::move(fd)));
}

RankLinkActions RankLinkCore::OnFailed(uint64_t session, const RankLinkMessage& message,
                                       std::string why) {
  if (!rank_of_.contains(session)) return {};
  RankLinkMessage failed = message;
  failed.kind = Kind::kFailed;
  failed.text = std::move(why);
  return One(rank_link_action::Send{session, std::move(failed), UniqueFd()});
}

}  // namespace dslaunch
