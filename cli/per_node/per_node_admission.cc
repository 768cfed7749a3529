#include "cli/per_node/per_node_admission.h"

#include <algorithm>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {
namespace {

Error Refused(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

std::string NodesText(const pb::AdmissionRequest& request) {
  const std::string most = std::to_string(request.max_nodes());
  return request.min_nodes() == request.max_nodes()
             ? most
             : std::to_string(request.min_nodes()) + ":" + most;
}

}  // namespace

std::optional<Error> WhyAnotherJob(const pb::AdmissionRequest& own,
                                   const pb::AdmissionRequest& other, const std::string& where) {
  if (other.version() != own.version()) {
    return Refused("node 0 runs dslaunch " + own.version() + ", " + where + " runs dslaunch " +
                   Truncate(other.version()) + "; install one version on all nodes");
  }
  if (other.job() != own.job()) {
    return Refused("--rdzv_id is " + Quoted(own.job()) + " on node 0 and " + Quoted(other.job()) +
                   " on " + where + "; is another job's node 0 at this address?");
  }
  if (NodesText(other) != NodesText(own)) {
    return Refused("--nnodes is " + NodesText(own) + " on node 0 and " + NodesText(other) + " on " +
                   where + "; give all nodes the same");
  }
  if (other.program().name() != own.program().name()) {
    return Refused("node 0 runs '" + own.program().name() + "', " + where +
                   " runs another command: " + Truncate(other.program().shown()) +
                   "; start the same program on all nodes");
  }
  if (other.program().form() != own.program().form()) {
    return Refused("'" + own.program().name() + "' is started in another way on " + where +
                   " than on node 0; give all nodes the same options and recipe");
  }
  return std::nullopt;
}

Admission::Admission(AdmissionOptions options, Clock::time_point now)
    : options_(std::move(options)), join_deadline_(now + options_.join_timeout) {
  if (present() >= options_.own.min_nodes()) last_call_ends_ = now + options_.last_call;
}

std::optional<Error> Admission::Admit(PeerId peer, const pb::AdmissionRequest& request,
                                      const std::string& where, Clock::time_point now) {
  if (std::optional<Error> another = WhyAnotherJob(options_.own, request, where)) return another;
  if (std::optional<Error> refused = WhyRejected(request, where)) return refused;
  const std::optional<size_t> place = FreePlaceFor(request);
  peers_[peer] = {place, static_cast<int>(request.slots()), where};
  if (present() >= options_.own.min_nodes() && !last_call_ends_)
    last_call_ends_ = now + options_.last_call;
  return std::nullopt;
}

std::optional<Error> Admission::WhyRejected(const pb::AdmissionRequest& request,
                                            const std::string& where) const {
  const size_t nodes = options_.names.size();
  const std::string rank = std::to_string(request.node_rank());
  if (request.has_node_rank() && request.node_rank() >= nodes) {
    return Refused(where + " has --node_rank " + rank + ", but the job has " +
                   Count(nodes, "node") + ", 0 to " + std::to_string(nodes - 1));
  }
  if (request.has_node_rank() && request.node_rank() == 0) {
    return Refused(where + " has --node_rank 0, which node 0's command has on " +
                   options_.own.host_name() + "; give each node its own");
  }
  if (request.slots() < 1 || request.slots() > kMaxSlots) {
    return Refused(where + " has " + Count(request.slots(), "slot") + "; a node has 1 to " +
                   std::to_string(kMaxSlots));
  }
  if (started_ && !options_.takes_late) {
    return Error{ExitCode::kUnavailable,
                 "the job runs already and " + where +
                     " is too late; with --max_restarts N a node may join later or rejoin"};
  }
  if (request.has_node_rank()) {
    for (const auto& [id, other] : peers_) {
      if (other.place != request.node_rank()) continue;
      return Refused("node " + rank + " has joined already, from " + other.where + "; " + where +
                     " has the same --node_rank: give each node its own");
    }
  }
  const std::optional<size_t> place = FreePlaceFor(request);
  if (present() >= nodes || (started_ && !place)) {
    return Error{
        ExitCode::kUnavailable,
        (nodes == 1 ? "the one node has" : "all " + std::to_string(nodes) + " nodes have") +
            " joined already, " + where + " is one too many; is --nnodes right?"};
  }
  const std::vector<int>& expected = started_ ? slots_ : options_.slots;
  if (!place || expected.empty() || expected[*place] == static_cast<int>(request.slots()))
    return std::nullopt;
  return Refused(
      where + " has " + Count(request.slots(), "slot") + " for " + options_.names[*place] +
      ", node 0 expects " + std::to_string(expected[*place]) +
      (started_ ? "; a node that joins later must have as many" : "; give both the same hostfile"));
}

// Returns a free place for the request. Before the start, a node without a node rank gets no place,
// because a later node may request any place by its rank.
std::optional<size_t> Admission::FreePlaceFor(const pb::AdmissionRequest& request) const {
  if (request.has_node_rank()) return request.node_rank();
  if (!started_) return std::nullopt;
  for (size_t place = 1; place < options_.names.size(); ++place) {
    if (!PeerAt(place) && slots_[place] == static_cast<int>(request.slots())) return place;
  }
  return std::nullopt;
}

void Admission::Leave(PeerId peer) {
  peers_.erase(peer);
  if (!started_ && present() < options_.own.min_nodes()) last_call_ends_.reset();
}

std::vector<std::string> Admission::Missing() const {
  std::vector<std::string> missing;
  for (size_t place = 1; place < options_.names.size(); ++place) {
    if (!PeerAt(place)) missing.push_back(options_.names[place]);
  }
  return missing;
}

Admission::Decision Admission::Decide(Clock::time_point now) const {
  using Verdict = Decision::Verdict;
  const size_t nodes = options_.names.size();
  const std::string here = std::to_string(present()) + " of " + Count(nodes, "node") +
                           (present() == 1 ? " has" : " have");
  if (present() == nodes) return {Verdict::kStart, "all nodes have joined", {}};
  if (last_call_ends_ && (now >= *last_call_ends_ || now >= join_deadline_))
    return {Verdict::kStart, here + " joined, and no other node joined in time", {}};
  if (last_call_ends_) {
    return {Verdict::kWait, here + " joined, which is enough; others may still join",
            std::min(*last_call_ends_, join_deadline_)};
  }
  if (now < join_deadline_) return {Verdict::kWait, here + " joined", join_deadline_};
  const bool by_rank =
      std::ranges::any_of(peers_, [](const auto& entry) { return entry.second.place.has_value(); });
  return {Verdict::kGiveUp,
          "only " + here + " joined after " + Seconds(options_.join_timeout.count()) +
              (by_rank || present() == 1 ? ", missing: " + NameList(Missing(), ", ") : "") +
              "; run the same command there too, and check that a firewall lets it through",
          {}};
}

void Admission::Start() {
  size_t next = 1;
  for (auto& [id, peer] : peers_) {
    if (peer.place) continue;
    while (PeerAt(next)) ++next;
    peer.place = next;
  }
  slots_.assign(options_.names.size(), static_cast<int>(options_.own.slots()));
  for (size_t place = 1; place < slots_.size(); ++place) {
    if (!options_.slots.empty()) slots_[place] = options_.slots[place];
  }
  for (const auto& [id, peer] : peers_) slots_[*peer.place] = peer.slots;
  started_ = true;
}

std::optional<PeerId> Admission::PeerAt(size_t place) const {
  for (const auto& [id, peer] : peers_) {
    if (peer.place == place) return id;
  }
  return std::nullopt;
}

std::optional<size_t> Admission::PlaceOf(PeerId peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? std::nullopt : found->second.place;
}

int Admission::SlotsOf(size_t place) const { return slots_[place]; }

}  // namespace dslaunch
