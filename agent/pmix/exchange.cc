#include "agent/pmix/exchange.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr uint32_t kMaxPmixRanks = 1u << 20;
constexpr char kTooMuch[] = "the ranks put more than 15 MiB";
constexpr char kGone[] = "the ranks of a node that takes part have ended";

Error NotOurs(std::string what) { return {ExitCode::kBadInput, std::move(what)}; }

void SetFence(const std::pair<std::vector<uint32_t>, uint64_t>& key, pb::Fence& fence) {
  *fence.mutable_ranks() = {key.first.begin(), key.first.end()};
  fence.set_number(key.second);
}

}  // namespace

Result<void> CheckPmixJob(const pb::PmixJob& job) {
  if (job.nspace().empty() || job.folder().empty()) return NotOurs("a job without a name");
  if (job.node_rank() >= static_cast<uint32_t>(job.nodes_size()))
    return NotOurs("a job without this node");
  uint64_t next = 0;
  for (const pb::PmixNode& node : job.nodes()) {
    if (node.name().empty() || node.first_rank() != next || node.ranks() == 0)
      return NotOurs("ranks that do not follow each other");
    next += node.ranks();
    if (next > kMaxPmixRanks) return NotOurs("too many ranks");
  }
  return {};
}

pb::ModexReply ReplyTo(const pb::ModexRequest& request) {
  pb::ModexReply reply;
  reply.set_number(request.number());
  reply.set_from_node(request.from_node());
  reply.set_rank(request.rank());
  return reply;
}

PmixExchange::PmixExchange(const pb::PmixJob& job) : node_rank_(job.node_rank()) {
  for (uint32_t node = 0; node < static_cast<uint32_t>(job.nodes_size()); ++node)
    node_of_.insert(node_of_.end(), job.nodes(static_cast<int>(node)).ranks(), node);
}

std::vector<uint32_t> PmixExchange::NodesOf(const std::vector<uint32_t>& ranks) const {
  std::vector<uint32_t> nodes;
  if (ranks.empty()) nodes = node_of_;
  for (const uint32_t rank : ranks) nodes.push_back(node_of_.at(rank));
  std::ranges::sort(nodes);
  const auto rest = std::ranges::unique(nodes);
  nodes.erase(rest.begin(), rest.end());
  return nodes;
}

pmix_action::Send PmixExchange::SendTo(uint32_t node_rank, pb::PmixMessage message) const {
  return {is_hub() ? node_rank : 0, std::move(message)};
}

// --- Fences of local ranks and of other nodes ---

PmixActions PmixExchange::OnLocalFence(uint64_t id, std::vector<uint32_t> ranks, std::string data) {
  PmixActions actions;
  const uint64_t number = fences_of_[ranks]++;
  const FenceKey key(std::move(ranks), number);
  local_fences_[key] = id;
  pb::FencePart part;
  SetFence(key, *part.mutable_fence());
  const bool hub_is_gone = gone_.contains(0);
  if (data.size() > kMaxFenceBytes || hub_is_gone) {
    actions.push_back(pmix_action::EndFence{id, "", hub_is_gone ? kGone : kTooMuch});
    local_fences_.erase(key);
    return actions;
  }
  part.set_data(std::move(data));
  if (is_hub()) {
    static_cast<void>(OnPart(0, std::move(part), actions));
    return actions;
  }
  pb::PmixMessage message;
  *message.mutable_part() = std::move(part);
  actions.push_back(SendTo(0, std::move(message)));
  return actions;
}

Result<PmixExchange::FenceKey> PmixExchange::CheckFence(const pb::Fence& fence) const {
  std::vector<uint32_t> ranks(fence.ranks().begin(), fence.ranks().end());
  if (std::ranges::adjacent_find(ranks, std::greater_equal<>()) != ranks.end() ||
      (!ranks.empty() && ranks.back() >= world_size()))
    return NotOurs("a fence of ranks that are not in the job");
  return FenceKey(std::move(ranks), fence.number());
}

Result<void> PmixExchange::OnPart(uint32_t from_node, pb::FencePart part, PmixActions& actions) {
  DSL_TRY_ASSIGN(const FenceKey key, CheckFence(part.fence()));
  auto found = gatherings_.find(key);
  if (found == gatherings_.end()) {
    if (gatherings_.size() >= kMaxOpen) return NotOurs("more fences than there can be");
    Gathering gathering;
    gathering.nodes = NodesOf(key.first);
    gathering.missing.insert(gathering.nodes.begin(), gathering.nodes.end());
    found = gatherings_.emplace(key, std::move(gathering)).first;
  }
  Gathering& gathering = found->second;
  if (gathering.missing.erase(from_node) == 0)
    return NotOurs("a fence in which it has no ranks, or the same one twice");
  if (gathering.data.size() + part.data().size() > kMaxFenceBytes) gathering.failure = kTooMuch;
  if (gathering.failure.empty()) gathering.data += part.data();
  if (!IsOver(gathering)) return {};
  Gathering over = std::move(gathering);
  gatherings_.erase(found);
  EndGathering(key, std::move(over), actions);
  return {};
}

// Returns whether every node that has not ended has sent its data for the fence.
bool PmixExchange::IsOver(const Gathering& gathering) const {
  return std::ranges::all_of(gathering.missing,
                             [this](uint32_t node) { return gone_.contains(node); });
}

void PmixExchange::EndGathering(const FenceKey& key, Gathering gathering, PmixActions& actions) {
  pb::FenceEnd end;
  SetFence(key, *end.mutable_fence());
  if (!gathering.missing.empty()) gathering.failure = kGone;
  if (gathering.failure.empty())
    end.set_data(std::move(gathering.data));
  else
    end.set_failure(gathering.failure);
  for (const uint32_t node : gathering.nodes) {
    if (node == 0 || gone_.contains(node)) continue;
    pb::PmixMessage message;
    *message.mutable_end() = end;
    actions.push_back(SendTo(node, std::move(message)));
  }
  if (gathering.nodes.front() == 0) static_cast<void>(OnEnd(std::move(end), actions));
}

Result<void> PmixExchange::OnEnd(pb::FenceEnd end, PmixActions& actions) {
  DSL_TRY_ASSIGN(const FenceKey key, CheckFence(end.fence()));
  const auto found = local_fences_.find(key);
  if (found == local_fences_.end()) return NotOurs("the end of a fence that did not begin here");
  actions.push_back(pmix_action::EndFence{found->second, std::move(*end.mutable_data()),
                                          std::move(*end.mutable_failure())});
  local_fences_.erase(found);
  return {};
}

PmixActions PmixExchange::OnNodeGone(uint32_t node_rank) {
  PmixActions actions;
  gone_.insert(node_rank);
  std::vector<FenceKey> over;
  for (const auto& [key, gathering] : gatherings_) {
    if (IsOver(gathering)) over.push_back(key);
  }
  for (const FenceKey& key : over)
    EndGathering(key, std::move(gatherings_.extract(key).mapped()), actions);
  // All open fences and requests go through the hub, so they fail when the hub ends.
  if (node_rank == 0) {
    for (const auto& [key, id] : std::exchange(local_fences_, {}))
      actions.push_back(pmix_action::EndFence{id, "", kGone});
  }
  std::erase_if(local_requests_, [&](const auto& request) {
    const auto& [id, rank] = request.second;
    const bool is_over = node_rank == 0 || node_of_[rank] == node_rank;
    if (is_over) actions.push_back(pmix_action::EndRequest{id, "", kGone});
    return is_over;
  });
  // The requesting node does not detect that the other node has ended, so the hub answers.
  std::erase_if(forwarded_, [&](const auto& entry) {
    const pb::ModexRequest& request = entry.second;
    const bool is_unanswered = node_of_[request.rank()] == node_rank;
    if (is_unanswered) Refuse(request, actions);
    return is_unanswered || request.from_node() == node_rank;
  });
  return actions;
}

// --- Requests for the values of single ranks ---

PmixActions PmixExchange::OnLocalRequest(uint64_t id, uint32_t rank) {
  PmixActions actions;
  if (rank >= world_size() || node_of_[rank] == node_rank_ || gone_.contains(0) ||
      gone_.contains(node_of_[rank]) || local_requests_.size() >= kMaxOpen) {
    actions.push_back(pmix_action::EndRequest{id, "", "no other node has this rank now"});
    return actions;
  }
  pb::PmixMessage message;
  message.mutable_request()->set_number(++last_request_);
  message.mutable_request()->set_from_node(node_rank_);
  message.mutable_request()->set_rank(rank);
  local_requests_[last_request_] = {id, rank};
  actions.push_back(SendTo(node_of_[rank], std::move(message)));
  return actions;
}

PmixActions PmixExchange::OnLocalReply(pb::ModexReply reply) {
  PmixActions actions;
  --asked_library_;
  if (reply.data().size() > kMaxFenceBytes) {
    reply.clear_data();
    reply.set_failure(kTooMuch);
  }
  const uint32_t to = reply.from_node();
  pb::PmixMessage message;
  *message.mutable_reply() = std::move(reply);
  actions.push_back(SendTo(to, std::move(message)));
  return actions;
}

Result<void> PmixExchange::OnRequest(uint32_t from_node, pb::ModexRequest request,
                                     PmixActions& actions) {
  if (request.rank() >= world_size()) return NotOurs("a request for a rank that is not in the job");
  const uint32_t owner = node_of_[request.rank()];
  // The hub verifies the sender of a request. It forwards all requests, so the other nodes trust
  // the hub.
  const bool is_true = is_hub() ? request.from_node() == from_node && owner != from_node
                                : owner == node_rank_ && request.from_node() != node_rank_ &&
                                      request.from_node() <= node_of_.back();
  if (!is_true) return NotOurs("a request of another node");
  if (owner == node_rank_) {
    if (++asked_library_ > kMaxOpen) return NotOurs("more requests than there can be");
    actions.push_back(pmix_action::AskLibrary{std::move(request)});
    return {};
  }
  if (gone_.contains(owner)) {
    Refuse(request, actions);
    return {};
  }
  if (forwarded_.size() >= kMaxOpen) return NotOurs("more requests than there can be");
  if (!forwarded_.emplace(std::pair(from_node, request.number()), request).second)
    return NotOurs("the same request twice");
  pb::PmixMessage message;
  *message.mutable_request() = std::move(request);
  actions.push_back(SendTo(owner, std::move(message)));
  return {};
}

// Sends a failure to a node that has requested values from a node that has ended.
void PmixExchange::Refuse(const pb::ModexRequest& request, PmixActions& actions) const {
  if (gone_.contains(request.from_node())) return;
  pb::PmixMessage message;
  *message.mutable_reply() = ReplyTo(request);
  message.mutable_reply()->set_failure(kGone);
  actions.push_back(SendTo(request.from_node(), std::move(message)));
}

Result<void> PmixExchange::OnReply(uint32_t from_node, pb::ModexReply reply, PmixActions& actions) {
  if (reply.rank() >= world_size() || reply.from_node() > node_of_.back() ||
      (is_hub() && node_of_[reply.rank()] != from_node))
    return NotOurs("a reply for another node's rank");
  if (reply.from_node() != node_rank_) {
    if (!is_hub()) return NotOurs("a reply for another node");
    const uint32_t to = reply.from_node();
    if (gone_.contains(to)) return {};
    const auto asked = forwarded_.find({to, reply.number()});
    if (asked == forwarded_.end() || asked->second.rank() != reply.rank())
      return NotOurs("a reply that was not asked for");
    forwarded_.erase(asked);
    pb::PmixMessage message;
    *message.mutable_reply() = std::move(reply);
    actions.push_back(SendTo(to, std::move(message)));
    return {};
  }
  const auto found = local_requests_.find(reply.number());
  if (found == local_requests_.end() || found->second.second != reply.rank())
    return NotOurs("a reply that was not asked for");
  actions.push_back(pmix_action::EndRequest{found->second.first, std::move(*reply.mutable_data()),
                                            std::move(*reply.mutable_failure())});
  local_requests_.erase(found);
  return {};
}

Result<PmixActions> PmixExchange::OnMessage(uint32_t from_node, pb::PmixMessage message) {
  PmixActions actions;
  switch (message.message_case()) {
    case pb::PmixMessage::kPart:
      if (!is_hub()) return NotOurs("a part of a fence to a node that gathers none");
      DSL_TRY(OnPart(from_node, std::move(*message.mutable_part()), actions));
      break;
    case pb::PmixMessage::kEnd:
      if (is_hub()) return NotOurs("the end of a fence to the node that ends them");
      DSL_TRY(OnEnd(std::move(*message.mutable_end()), actions));
      break;
    case pb::PmixMessage::kRequest:
      DSL_TRY(OnRequest(from_node, std::move(*message.mutable_request()), actions));
      break;
    case pb::PmixMessage::kReply:
      DSL_TRY(OnReply(from_node, std::move(*message.mutable_reply()), actions));
      break;
    default:
      return NotOurs("an empty message");
  }
  return actions;
}

}  // namespace dslaunch
