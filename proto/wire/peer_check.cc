#include "proto/wire/peer_check.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/goodput.h"
#include "proto/contract/status_line.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::string_view kMark = "...";  // replaces the part of a text that was cut
constexpr size_t kMaxAddressBytes = 128;
constexpr uint32_t kMaxPort = 65'535;
constexpr int kMaxSignal = 64;
constexpr int kMaxExitCode = 255;
constexpr uint32_t kMaxGpus = 4'096;
constexpr int kMaxEndpoints = 64;
constexpr uint32_t kMaxDelayMs = 24 * 3'600 * 1'000;

// --- Limits of texts and lists ---

// The size of a message up to which no text or list can exceed its limit, because an entry takes at
// least two bytes. Most messages are that small and need no reflection, before whose first use
// Protobuf builds its descriptors.
constexpr size_t kNothingToCutBytes = std::min(kMaxPeerTextBytes, kMaxLastLinesBytes);
static_assert(kNothingToCutBytes < size_t{2} * kMaxPeerEntries);

size_t TextLimit(const FieldDescriptor& field) {
  if (field.name() == "data") return SIZE_MAX;
  return field.name() == "last_lines" ? kMaxLastLinesBytes : kMaxPeerTextBytes;
}

// Cuts the end of a text. Keeps whole UTF-8 characters, and appends kMark.
void CutEnd(std::string& text, size_t max_bytes) {
  size_t end = max_bytes - kMark.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  text += kMark;
}

bool Cut(const FieldDescriptor& field, std::string& text) {
  const size_t limit = TextLimit(field);
  if (text.size() <= limit) return false;
  if (field.name() == "last_lines")
    text.replace(0, text.size() - limit + kMark.size(), kMark);
  else
    CutEnd(text, limit);
  return true;
}

void CutField(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (field.is_map() || (!is_text && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)) return;
  if (!field.is_repeated()) {
    if (!is_text) return CutTexts(*reflection.MutableMessage(&message, &field));
    std::string text = reflection.GetString(message, &field);
    if (Cut(field, text)) reflection.SetString(&message, &field, std::move(text));
    return;
  }
  while (reflection.FieldSize(message, &field) > kMaxPeerEntries)
    reflection.RemoveLast(&message, &field);
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    if (!is_text) {
      CutTexts(*reflection.MutableRepeatedMessage(&message, &field, i));
      continue;
    }
    std::string text = reflection.GetRepeatedString(message, &field, i);
    if (Cut(field, text)) reflection.SetRepeatedString(&message, &field, i, std::move(text));
  }
}

// --- Checks of numbers and addresses ---

// Collects the results of checks, and reports the first violation.
class Rules {
 public:
  void InRange(std::string_view what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    Break(std::string(what) + " = " + std::to_string(value) + ", which is not from " +
          std::to_string(low) + " to " + std::to_string(high));
  }
  void AtMost(std::string_view what, uint64_t value, uint64_t most) {
    if (value > most) {
      Break(std::string(what) + " = " + std::to_string(value) + ", which is above " +
            std::to_string(most));
    }
  }
  void Below(std::string_view what, uint64_t value, uint64_t bound) {
    if (value >= bound) {
      Break(std::string(what) + " = " + std::to_string(value) + ", which is not below " +
            std::to_string(bound));
    }
  }
  void Holds(bool holds, std::string_view otherwise) {
    if (!holds) Break(std::string(otherwise));
  }

  Result<void> result() const { return result_; }

 private:
  void Break(std::string message) {
    if (result_.ok()) result_ = Error{ExitCode::kUnavailable, std::move(message)};
  }

  Result<void> result_;
};

// Returns whether the text has only characters that occur in numeric addresses, host names and
// interface names.
bool IsAddress(std::string_view text) {
  return text.size() <= kMaxAddressBytes && std::ranges::all_of(text, [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view(".:%_-[]").find(static_cast<char>(c)) != std::string_view::npos;
         });
}

// Returns whether the text has the form "address:port".
bool IsEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (!IsAddress(text) || colon == std::string_view::npos || colon == 0) return false;
  const std::string_view port = text.substr(colon + 1);
  constexpr size_t kMostDigits = 5;
  if (port.empty() || port.size() > kMostDigits ||
      port.find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  const int number = std::stoi(std::string(port));
  return number >= 1 && number <= static_cast<int>(kMaxPort);
}

void CheckFailure(Rules& rules, const pb::Failure& failure) {
  rules.InRange("exit code of a failure", failure.exit_code(), 1, kMaxExitCode);
}

void CheckEndpoints(Rules& rules, const google::protobuf::RepeatedPtrField<std::string>& list) {
  rules.InRange("number of endpoints", list.size(), 0, kMaxEndpoints);
  rules.Holds(std::ranges::all_of(list, IsEndpoint), "an endpoint that is not ADDRESS:PORT");
}

void CheckCause(Rules& rules, const pb::Cause& cause, const PeerLimits& limits) {
  rules.Holds(pb::Cause::Kind_IsValid(cause.kind()), "a cause of an unknown kind");
  rules.Holds(pb::Cause::PeerFault_IsValid(cause.peer_fault()), "an unknown fault of a peer");
  rules.Holds(pb::Cause::Restart_IsValid(cause.restart()), "an unknown verdict on a restart");
  const bool failed = cause.kind() != pb::Cause::NONE;
  rules.InRange("exit code of a failure", cause.exit_code(), failed ? 1 : 0, kMaxExitCode);
  rules.InRange("signal", cause.signal(), 0, kMaxSignal);
  rules.Below("node of a cause", cause.node_index(), limits.nodes);
  rules.InRange("rank of a cause", cause.rank(), -1, int64_t{limits.ranks} - 1);
  rules.InRange("local rank of a cause", cause.local_rank(), -1, int64_t{limits.ranks} - 1);
  rules.AtMost("attempt", cause.attempt(), limits.attempts);
}

void CheckNodes(Rules& rules, const pb::NodeSet& nodes, const PeerLimits& limits) {
  rules.AtMost("number of runs of nodes", static_cast<uint64_t>(nodes.bounds_size()),
               2 * uint64_t{limits.nodes});
  uint32_t before = 0;
  for (const uint32_t bound : nodes.bounds()) {
    rules.Holds(bound >= before, "nodes that are not ascending");
    rules.AtMost("node", bound, limits.nodes);
    before = bound;
  }
}

void CheckVictims(Rules& rules, const google::protobuf::RepeatedField<uint32_t>& victims,
                  const PeerLimits& limits) {
  rules.AtMost("number of victims", static_cast<uint64_t>(victims.size()), limits.ranks);
  for (const uint32_t rank : victims) rules.Below("rank of a victim", rank, limits.ranks);
}

void CheckGoodput(Rules& rules, const pb::NodeGoodput& goodput, const PeerLimits& limits) {
  constexpr uint64_t kMostUs = 1'000'000'000'000'000;  // 31 years in microseconds
  rules.AtMost("number of ranks", static_cast<uint64_t>(goodput.ranks_size()), limits.slots);
  for (const pb::RankGoodput& rank : goodput.ranks()) {
    rules.AtMost("number of times", static_cast<uint64_t>(rank.us_size()), kGoodputBuckets);
    for (const uint64_t us : rank.us()) rules.AtMost("time", us, kMostUs);
    rules.Below("state", rank.bucket(), kGoodputBuckets);
    rules.AtMost("age of a checkpoint", rank.saved_age_us(), kMostUs);
    rules.AtMost("age of a copy in memory", rank.copied_age_us(), kMostUs);
  }
}

void CheckStarted(Rules& rules, const pb::Started& started, const PeerLimits& limits) {
  const auto own = static_cast<uint64_t>(started.pids_size());
  rules.AtMost("attempt", started.attempt(), limits.attempts);
  rules.AtMost("world size", started.world_size(), limits.ranks);
  rules.AtMost("number of ranks", own, limits.slots);
  rules.AtMost("last rank + 1", started.first_rank() + own, started.world_size());
  for (const int pid : started.pids()) rules.InRange("pid", pid, 0, INT32_MAX);
  rules.Holds(IsAddress(started.master_addr()), "an invalid MASTER_ADDR");
  rules.AtMost("MASTER_PORT", started.master_port(), kMaxPort);
  rules.AtMost("number of restarts", started.restart_count(), limits.attempts);
  CheckNodes(rules, started.members(), limits);
  CheckGoodput(rules, started.goodput(), limits);
}

void CheckPlace(Rules& rules, uint64_t attempt, uint32_t rank, uint32_t local_rank,
                const PeerLimits& limits) {
  rules.AtMost("attempt", attempt, limits.attempts);
  rules.Below("rank", rank, limits.ranks);
  rules.Below("local rank", local_rank, limits.slots);
}

void CheckDone(Rules& rules, const pb::NodeDone& done, const PeerLimits& limits) {
  CheckCause(rules, done.cause(), limits);
  CheckNodes(rules, done.members(), limits);
  CheckVictims(rules, done.victims(), limits);
  CheckGoodput(rules, done.goodput(), limits);
}

void CheckAssignment(Rules& rules, const pb::Assignment& ranks, const PeerLimits& limits) {
  rules.InRange("world size", ranks.world_size(), 1, limits.ranks);
  rules.AtMost("last rank + 1", uint64_t{ranks.first_rank()} + limits.slots, ranks.world_size());
  if (ranks.role_world_size() > 0) {
    rules.AtMost("last rank of a role + 1", uint64_t{ranks.first_role_rank()} + limits.slots,
                 ranks.role_world_size());
  }
  rules.AtMost("ranks of a role", ranks.role_world_size(), ranks.world_size());
  rules.InRange("number of nodes", ranks.num_nodes(), 1, limits.nodes);
  rules.Below("node", ranks.node_rank(), ranks.num_nodes());
  rules.Holds(IsAddress(ranks.master_addr()), "an invalid MASTER_ADDR");
  rules.AtMost("MASTER_PORT", ranks.master_port(), kMaxPort);
  rules.AtMost("port", ranks.link_port(), kMaxPort);
  CheckNodes(rules, ranks.members(), limits);
}

}  // namespace

void CutTexts(Message& message) {
  if (message.ByteSizeLong() <= kNothingToCutBytes) return;
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) CutField(message, *field);
}

Result<void> CheckPrepareReply(pb::PrepareReply& reply) {
  CutTexts(reply);
  Rules rules;
  rules.Holds(reply.outcome_case() != pb::PrepareReply::OUTCOME_NOT_SET, "an empty answer");
  if (reply.has_failure()) CheckFailure(rules, reply.failure());
  if (reply.has_info()) {
    rules.Holds(reply.info().job_dir().starts_with('/'),
                "a job folder that is not an absolute path");
    rules.AtMost("number of GPUs", reply.info().gpus(), kMaxGpus);
    rules.Holds(pb::Device_IsValid(reply.info().device()), "an unknown kind of device");
    CheckEndpoints(rules, reply.info().rendezvous_endpoints());
  }
  return rules.result();
}

Result<void> CheckCopyOutput(pb::CopyOutput& output) {
  CutTexts(output);
  Rules rules;
  if (output.has_failure()) CheckFailure(rules, output.failure());
  if (output.has_done()) {
    rules.Holds(output.done().folder().starts_with('/'), "a folder that is not an absolute path");
  }
  return rules.result();
}

Result<void> CheckFailoverReply(pb::FailoverReply& reply) {
  CutTexts(reply);
  Rules rules;
  rules.Holds(reply.outcome_case() != pb::FailoverReply::OUTCOME_NOT_SET, "an empty answer");
  if (reply.has_failure()) CheckFailure(rules, reply.failure());
  CheckEndpoints(rules, reply.opened().rendezvous_endpoints());
  return rules.result();
}

// Ranks and devices must be in ascending order, which ensures that no rank or device occurs twice.
void CheckSample(Rules& rules, const pb::NodeSample& sample, const PeerLimits& limits) {
  rules.AtMost("attempt", sample.attempt(), limits.attempts);
  rules.AtMost("number of ranks", static_cast<uint64_t>(sample.ranks_size()), limits.slots);
  rules.AtMost("number of GPUs", static_cast<uint64_t>(sample.devices_size()), kMaxGpus);
  for (int i = 0; i < sample.ranks_size(); ++i) {
    rules.Below("rank", sample.ranks(i).rank(), limits.ranks);
    rules.Holds(i == 0 || sample.ranks(i - 1).rank() < sample.ranks(i).rank(), "ranks in no order");
  }
  for (const pb::DeviceSample& device : sample.devices()) {
    rules.Holds(std::isfinite(device.power_w()) && std::isfinite(device.power_limit_w()),
                "a power that is not finite");
  }
}

Result<void> CheckNodeEvent(pb::NodeEvent& event, const PeerLimits& limits) {
  Rules rules;
  if (!event.has_log()) CutTexts(event);
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      CheckStarted(rules, event.started(), limits);
      break;
    case pb::NodeEvent::kWorkerEnded: {
      const pb::WorkerEnded& ended = event.worker_ended();
      CheckPlace(rules, ended.attempt(), ended.rank(), ended.local_rank(), limits);
      rules.InRange("exit code", ended.exit_code(), 0, kMaxExitCode);
      rules.InRange("signal", ended.signal(), 0, kMaxSignal);
      rules.Holds(!ended.tolerated() || (ended.signal() != 0 && !ended.stopping()),
                  "a tolerated loss that no signal to a rank caused");
      rules.Holds(pb::Cause::PeerFault_IsValid(ended.peer_fault()), "an unknown fault of a peer");
      break;
    }
    case pb::NodeEvent::kLog:
      CheckPlace(rules, event.log().attempt(), event.log().rank(), event.log().local_rank(),
                 limits);
      break;
    case pb::NodeEvent::kStatus:
      rules.Below("rank", event.status().rank(), limits.ranks);
      rules.AtMost("bytes of a status line", event.status().line().size(), kMaxStatusLineBytes);
      break;
    case pb::NodeEvent::kSample:
      CheckSample(rules, event.sample(), limits);
      break;
    case pb::NodeEvent::kOutcome:
      rules.AtMost("attempt", event.outcome().attempt(), limits.attempts);
      CheckCause(rules, event.outcome().cause(), limits);
      break;
    case pb::NodeEvent::kDone:
      CheckDone(rules, event.done(), limits);
      break;
    case pb::NodeEvent::kGoodput:
      CheckGoodput(rules, event.goodput(), limits);
      break;
    case pb::NodeEvent::kRunning:
      rules.AtMost("attempt", event.running().attempt(), limits.attempts);
      break;
    case pb::NodeEvent::kRestarting:
      rules.AtMost("attempt", event.restarting().attempt(), limits.attempts);
      CheckCause(rules, event.restarting().cause(), limits);
      break;
    case pb::NodeEvent::kRendezvousLost:
      rules.AtMost("attempt", event.rendezvous_lost().attempt(), limits.attempts);
      CheckCause(rules, event.rendezvous_lost().cause(), limits);
      rules.Holds(event.rendezvous_lost().cause().kind() != pb::Cause::NONE,
                  "a lost rendezvous without a cause");
      break;
    default:  // notices, heartbeats and events of later versions need no check
      break;
  }
  return rules.result();
}

Result<void> CheckJobSight(pb::JobSight& sight) {
  CutTexts(sight);
  Rules rules;
  const pb::JobResult& result = sight.result();
  const bool failed = result.cause().kind() != pb::Cause::NONE;
  rules.InRange(failed ? "exit code of a failure" : "exit code", result.exit_code(), failed ? 1 : 0,
                kMaxExitCode);
  CheckDone(rules, result.done(), {});
  CheckCause(rules, result.cause(), {});
  CheckCause(rules, sight.status().cause(), {});
  CheckNodes(rules, sight.status().members(), {});
  CheckGoodput(rules, sight.status().goodput(), {});
  rules.AtMost("world size", sight.status().world_size(), kMaxJobRanks);
  return rules.result();
}

Result<void> CheckStacksReply(pb::StacksReply& reply, const PeerLimits& limits) {
  Rules rules;
  rules.AtMost("number of ranks", static_cast<uint64_t>(reply.ranks_size()), limits.slots);
  for (pb::RankStacks& stacks : *reply.mutable_ranks()) {
    rules.Below("rank", stacks.rank(), limits.ranks);
    CutRankStacks(stacks);
  }
  return rules.result();
}

Result<void> CheckAgentMessage(pb::AgentMessage& message, const PeerLimits& limits) {
  CutTexts(message);
  Rules rules;
  switch (message.message_case()) {
    case pb::AgentMessage::kJoin:
      rules.AtMost("port", message.join().master_port(), kMaxPort);
      rules.AtMost("port", message.join().link_port(), kMaxPort);
      rules.Holds(IsAddress(message.join().address()) && IsAddress(message.join().reached_at()),
                  "an invalid address");
      break;
    case pb::AgentMessage::kWorkerFailed:
      CheckCause(rules, message.worker_failed().cause(), limits);
      rules.Holds(!message.worker_failed().tolerated() ||
                      (message.worker_failed().cause().kind() == pb::Cause::WORKER_SIGNAL &&
                       message.worker_failed().cause().rank() >= 0),
                  "a tolerated loss that no signal to a rank caused");
      break;
    case pb::AgentMessage::kRankLost:
      rules.Below("rank", message.rank_lost().rank(), limits.ranks);
      break;
    case pb::AgentMessage::kInspected:
      rules.Below("rank", message.inspected().stacks().rank(), limits.ranks);
      CutRankStacks(*message.mutable_inspected()->mutable_stacks());
      if (message.inspected().has_flight())
        CutFlightRecord(*message.mutable_inspected()->mutable_flight());
      for (const uint32_t rank : message.inspected().ras().behind())
        rules.Below("rank", rank, limits.ranks);
      for (const uint32_t rank : message.inspected().ras().missing())
        rules.Below("rank", rank, limits.ranks);
      break;
    case pb::AgentMessage::kStop:
      CheckCause(rules, message.stop().cause(), limits);
      break;
    case pb::AgentMessage::kDrained:
      rules.AtMost("port", message.drained().master_port(), kMaxPort);
      break;
    case pb::AgentMessage::kHeartbeat:
      rules.AtMost("number of ranks in a heartbeat",
                   static_cast<uint64_t>(message.heartbeat().ranks_size()), limits.slots);
      rules.AtMost("number of ranks in a heartbeat",
                   static_cast<uint64_t>(message.heartbeat().stillness_size()), limits.slots);
      break;
    default:
      break;
  }
  return rules.result();
}

Result<void> CheckRendezvousMessage(pb::RendezvousMessage& message, const PeerLimits& limits) {
  CutTexts(message);
  Rules rules;
  rules.AtMost("attempt", message.attempt(), limits.attempts);
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      CheckAssignment(rules, message.assignment(), limits);
      break;
    case pb::RendezvousMessage::kStop:
      CheckCause(rules, message.stop().cause(), limits);
      break;
    case pb::RendezvousMessage::kCompleted:
      CheckCause(rules, message.completed().cause(), limits);
      CheckNodes(rules, message.completed().members(), limits);
      CheckVictims(rules, message.completed().victims(), limits);
      rules.AtMost("number of missing nodes",
                   static_cast<uint64_t>(message.completed().missing_nodes_size()), limits.nodes);
      break;
    case pb::RendezvousMessage::kRefused:
      CheckCause(rules, message.refused().cause(), limits);
      rules.Holds(message.refused().cause().kind() != pb::Cause::NONE, "a refusal without a cause");
      break;
    case pb::RendezvousMessage::kDrain:
      CheckCause(rules, message.drain().cause(), limits);
      rules.AtMost("delay in ms", message.drain().delay_ms(), kMaxDelayMs);
      break;
    case pb::RendezvousMessage::kPeers:
      rules.AtMost("number of peers", static_cast<uint64_t>(message.peers().peers_size()),
                   limits.nodes);
      for (const pb::Peer& peer : message.peers().peers()) {
        rules.Below("node", peer.node_index(), limits.nodes);
        rules.Holds(IsEndpoint(peer.endpoint()), "an endpoint that is not ADDRESS:PORT");
      }
      break;
    case pb::RendezvousMessage::kEndRank:
      rules.Below("rank", message.end_rank().rank(), limits.ranks);
      break;
    case pb::RendezvousMessage::kCutOff:
      CheckCause(rules, message.cut_off().cause(), limits);
      break;
    case pb::RendezvousMessage::kInspect:
      rules.AtMost("number of ranks", static_cast<uint64_t>(message.inspect().ranks_size()),
                   limits.ranks);
      break;
    default:
      break;
  }
  return rules.result();
}

Result<void> CheckVote(pb::Vote& vote, const PeerLimits& limits) {
  Rules rules;
  rules.AtMost("term", vote.term(), kMaxTerms);
  rules.AtMost("attempt", vote.attempt(), limits.attempts);
  rules.AtMost("number of restarts", vote.restarts(), limits.attempts);
  return rules.result();
}

Result<void> CheckVoteAnswer(pb::VoteAnswer& answer) {
  CutTexts(answer);
  Rules rules;
  rules.AtMost("term", answer.term(), kMaxTerms);
  CheckEndpoints(rules, answer.rendezvous_endpoints());
  return rules.result();
}

}  // namespace dslaunch
