#include "rendezvous/flight_judgement.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

using FlightKind = FlightVerdict::Kind;
using Records = std::map<uint32_t, const pb::FlightRecord*>;

// Description that PyTorch gives the group of all ranks.
constexpr std::string_view kDefaultGroup = "default_pg";
constexpr uint32_t kMaxRanks = 1 << 17;

// A call of a collective operation by a rank that has not completed.
struct Call {
  uint32_t rank = 0;
  const pb::FlightGroup* group = nullptr;
  const pb::FlightOperation* operation = nullptr;
};

// The calls of one collective operation, or of one exchange between two ranks.
struct Exchange {
  std::vector<Call> calls;
  std::vector<uint32_t> missing;  // ranks of the group that have not made their call
};

const pb::FlightGroup* FindGroup(const pb::FlightRecord& record, const std::string& name) {
  const auto found = std::ranges::find(record.groups(), name, &pb::FlightGroup::name);
  return found == record.groups().end() ? nullptr : &*found;
}

std::string GroupText(const pb::FlightGroup& group) {
  const bool has_description = !group.description().empty() && group.description() != "undefined";
  return SanitizeForTerminal(has_description ? group.description() : group.name());
}

std::string CollectiveText(const Call& call) {
  return "collective " + std::to_string(call.operation->number()) + " of group " +
         GroupText(*call.group);
}

std::string CallText(const Call& call) {
  const std::string name = SanitizeForTerminal(call.operation->name());
  if (call.operation->is_p2p()) return name + " (group " + GroupText(*call.group) + ")";
  return name + " (" + CollectiveText(call) + ")";
}

// Returns the program's line that called the exchange, such as " at train (train.py:12)"; empty if
// the call's frames are unknown.
std::string CallSite(const pb::FlightOperation& operation) {
  pb::ThreadStack site;
  for (const pb::StackFrame& frame : operation.frames()) {
    if (frame.file().find("-packages/torch/") != std::string::npos) continue;
    *site.add_frames() = frame;
    return " at " + FramesText(site, 1);
  }
  return "";
}

// Returns the global ranks of a group, in the group's order; empty if unknown.
std::vector<uint32_t> Members(const pb::FlightGroup& group, uint32_t world_size) {
  std::vector<uint32_t> members;
  for (const uint32_t rank : group.ranks()) {
    if (rank < world_size) members.push_back(rank);
  }
  if (!members.empty() || group.description() != kDefaultGroup || world_size > kMaxRanks)
    return members;
  for (uint32_t rank = 0; rank < world_size; ++rank) members.push_back(rank);
  return members;
}

// Returns a digest of the group's ranks, because groups of different ranks may have the same name.
uint64_t DigestOf(const pb::FlightGroup& group) {
  uint64_t digest = 0;
  constexpr uint64_t kFactor = 0x100000001b3;
  for (const uint32_t rank : group.ranks()) digest = (digest + rank + 1) * kFactor;
  return digest;
}

// Parses "send 0->1" or "recv 1<-0". Returns the other rank's index in the group and the operation
// that it must call; nullopt for any other name.
std::optional<std::pair<size_t, std::string>> OtherSide(std::string_view name) {
  const bool sends = name.starts_with("send ");
  if (!sends && !name.starts_with("recv ")) return std::nullopt;
  const std::string_view places = name.substr(5);
  const size_t arrow = places.find(sends ? "->" : "<-");
  if (arrow == std::string_view::npos) return std::nullopt;
  const std::string_view own = places.substr(0, arrow);
  const std::string_view other = places.substr(arrow + 2);
  size_t index = 0;
  const auto [end, status] = std::from_chars(other.data(), other.data() + other.size(), index);
  if (status != std::errc() || end != other.data() + other.size()) return std::nullopt;
  return std::pair(index, std::string(sends ? "recv " : "send ") + std::string(other) +
                              (sends ? "<-" : "->") + std::string(own));
}

// Returns a text of the operation with all properties that must be equal on all ranks of the
// exchange.
std::string ContractOf(const pb::FlightOperation& operation) {
  const std::string& name = operation.name();
  std::string text = SanitizeForTerminal(name);
  const bool is_uneven = name.starts_with("all_to_all") || name.starts_with("alltoall");
  const auto add = [&](const std::string& list) {
    if (!list.empty() && list != "[]") text += " " + SanitizeForTerminal(list);
  };
  if (!is_uneven && name != "scatter") add(operation.input_sizes());
  if (!is_uneven && name != "gather" && operation.output_sizes() != operation.input_sizes())
    add(operation.output_sizes());
  if (name != "scatter" && name != "gather") add(operation.dtypes());
  return text;
}

// Adds a line such as "ranks 0, 2 wait in all_reduce (...) at train (train.py:12)" to the verdict
// for each different operation and call site.
void AddLines(const std::vector<Call>& calls, FlightVerdict& verdict) {
  constexpr size_t kMaxLines = 6;
  std::map<std::string, std::set<uint32_t>> sides;
  for (const Call& call : calls)
    sides[CallText(call) + CallSite(*call.operation)].insert(call.rank);
  for (const auto& [text, waiting] : sides) {
    if (verdict.lines.size() == kMaxLines) return;
    const std::vector<uint32_t> ranks(waiting.begin(), waiting.end());
    verdict.lines.push_back(RanksText(ranks) + (ranks.size() == 1 ? " waits in " : " wait in ") +
                            text);
  }
}

class Judgement {
 public:
  Judgement(const std::vector<const pb::FlightRecord*>& records, uint32_t world_size)
      : world_size_(world_size) {
    for (const pb::FlightRecord* record : records) {
      if (record->trouble().empty()) records_.emplace(record->rank(), record);
    }
    for (const auto& [rank, record] : records_) {
      for (const pb::FlightGroup& group : record->groups()) {
        const uint64_t digest = DigestOf(group);
        for (const pb::FlightOperation& operation : group.operations()) {
          waiting_.insert(rank);
          const std::string peer =
              operation.is_p2p() ? operation.name() + " " + std::to_string(rank) : "";
          exchanges_[{operation.number(), group.name(), digest, peer}].calls.push_back(
              {rank, &group, &operation});
        }
      }
    }
    for (auto& [key, exchange] : exchanges_) FindMissing(exchange);
  }

  std::optional<FlightVerdict> Verdict() const {
    if (auto verdict = NotEntered()) return verdict;
    if (auto verdict = OtherOrder()) return verdict;
    if (auto verdict = OtherOperation()) return verdict;
    return NotStarted();
  }

 private:
  // Identifies an exchange: its number, its group's name and the digest of the group's ranks. For
  // an exchange between two ranks, the last part is its text.
  using Key = std::tuple<uint64_t, std::string, uint64_t, std::string>;

  void FindMissing(Exchange& exchange) {
    const Call& call = exchange.calls.front();
    std::vector<uint32_t> members = Members(*call.group, world_size_);
    if (call.operation->is_p2p()) return FindPeer(call, members, exchange);
    if (members.empty()) {
      some_are_unknown_ = true;
      for (const auto& [rank, record] : records_) {
        if (FindGroup(*record, call.group->name()) != nullptr) members.push_back(rank);
      }
    }
    for (const uint32_t rank : members) {
      const auto record = records_.find(rank);
      const pb::FlightGroup* own =
          record == records_.end() ? nullptr : FindGroup(*record->second, call.group->name());
      if (own == nullptr && (record == records_.end() || !record->second->whole()))
        some_are_unknown_ = true;
      else if (own == nullptr || own->enqueued() < call.operation->number())
        exchange.missing.push_back(rank);
    }
  }

  void FindPeer(const Call& call, const std::vector<uint32_t>& members, Exchange& exchange) {
    const auto other = OtherSide(call.operation->name());
    if (!other || other->first >= members.size() || !records_.contains(members[other->first])) {
      some_are_unknown_ = true;
      return;
    }
    const uint32_t rank = members[other->first];
    const pb::FlightGroup* group = FindGroup(*records_.at(rank), call.group->name());
    const bool answers = group != nullptr && std::ranges::count(group->operations(), other->second,
                                                                &pb::FlightOperation::name) > 0;
    if (!answers) exchange.missing.push_back(rank);
  }

  // Returns a verdict on ranks that have not called an exchange and wait for no rank themselves;
  // nullopt if there are none.
  std::optional<FlightVerdict> NotEntered() const {
    FlightVerdict verdict;
    std::set<uint32_t> blamed;
    std::vector<Call> calls;
    for (const auto& [key, exchange] : exchanges_) {
      const size_t before = blamed.size();
      for (const uint32_t rank : exchange.missing) {
        if (!waiting_.contains(rank)) blamed.insert(rank);
      }
      if (blamed.size() == before) continue;
      if (calls.empty()) verdict.what = CallText(exchange.calls.front());
      calls.insert(calls.end(), exchange.calls.begin(), exchange.calls.end());
    }
    if (blamed.empty()) return std::nullopt;
    verdict.kind = FlightKind::kNotEntered;
    verdict.ranks.assign(blamed.begin(), blamed.end());
    verdict.sure = !some_are_unknown_;
    AddLines(calls, verdict);
    return verdict;
  }

  // Returns a verdict on ranks that wait for each other in a circle; nullopt if there is no circle.
  std::optional<FlightVerdict> OtherOrder() const {
    // The pending call of each rank, and the rank for which it waits.
    std::map<uint32_t, std::pair<Call, uint32_t>> waits;
    for (const auto& [key, exchange] : exchanges_) {
      if (exchange.missing.empty()) continue;
      for (const Call& call : exchange.calls)
        waits.try_emplace(call.rank, call, exchange.missing.front());
    }
    if (waits.empty()) return std::nullopt;
    std::vector<uint32_t> path = {waits.begin()->first};
    while (true) {
      const auto wait = waits.find(path.back());
      if (wait == waits.end()) return std::nullopt;  // this rank waits in the common exchange
      const auto begin = std::ranges::find(path, wait->second.second);
      if (begin == path.end()) {
        path.push_back(wait->second.second);
        continue;
      }
      path.erase(path.begin(), begin);
      break;
    }
    FlightVerdict verdict;
    verdict.kind = FlightKind::kOtherOrder;
    std::vector<Call> calls;
    for (const uint32_t rank : path) calls.push_back(waits.at(rank).first);
    std::ranges::sort(path);
    verdict.ranks = std::move(path);
    verdict.what = CallText(calls.front());
    AddLines(calls, verdict);
    return verdict;
  }

  // Returns a verdict on the oldest collective operation for which ranks called different
  // operations; nullopt if there is none.
  std::optional<FlightVerdict> OtherOperation() const {
    for (const auto& [key, exchange] : exchanges_) {
      std::map<std::string, std::vector<const Call*>> sides;
      for (const Call& call : exchange.calls) sides[ContractOf(*call.operation)].push_back(&call);
      if (sides.size() > 1) return Compare(sides);
    }
    return std::nullopt;
  }

  static FlightVerdict Compare(const std::map<std::string, std::vector<const Call*>>& sides) {
    std::vector<std::pair<std::string, std::vector<const Call*>>> sorted(sides.begin(),
                                                                         sides.end());
    std::ranges::stable_sort(sorted, {}, [](const auto& side) { return side.second.size(); });
    FlightVerdict verdict;
    verdict.kind = FlightKind::kOtherOperation;
    verdict.what =
        "the operations of " + CollectiveText(*sorted.front().second.front()) + " differ";
    const bool has_majority = sorted.front().second.size() < sorted.back().second.size();
    for (size_t i = 0; i < sorted.size(); ++i) {
      constexpr size_t kMaxSides = 4;
      std::vector<uint32_t> ranks;
      for (const Call* call : sorted[i].second) ranks.push_back(call->rank);
      std::ranges::sort(ranks);
      if (has_majority && i + 1 < sorted.size())
        verdict.ranks.insert(verdict.ranks.end(), ranks.begin(), ranks.end());
      if (i < kMaxSides) {
        verdict.lines.push_back(RanksText(ranks) + " called " + sorted[i].first +
                                CallSite(*sorted[i].second.front()->operation));
      }
    }
    std::ranges::sort(verdict.ranks);
    return verdict;
  }

  // Returns a verdict on an exchange that the devices of some ranks have begun and the devices of
  // other ranks have not; nullopt if there is none.
  std::optional<FlightVerdict> NotStarted() const {
    for (const auto& [key, exchange] : exchanges_) {
      std::vector<Call> late;
      for (const Call& call : exchange.calls) {
        if (call.operation->state() == "scheduled") late.push_back(call);
      }
      const bool any_started = std::ranges::any_of(
          exchange.calls, [](const Call& call) { return call.operation->state() == "started"; });
      if (late.empty() || !any_started) continue;
      FlightVerdict verdict;
      verdict.kind = FlightKind::kNotStarted;
      verdict.what = CallText(late.front());
      for (const Call& call : late) verdict.ranks.push_back(call.rank);
      AddLines(late, verdict);
      return verdict;
    }
    return std::nullopt;
  }

  const uint32_t world_size_;
  Records records_;
  std::map<Key, Exchange> exchanges_;
  std::set<uint32_t> waiting_;  // ranks with a call that is not completed
  bool some_are_unknown_ = false;
};

}  // namespace

std::optional<FlightVerdict> JudgeFlight(const std::vector<const pb::FlightRecord*>& records,
                                         uint32_t world_size) {
  return Judgement(records, world_size).Verdict();
}

}  // namespace dslaunch
