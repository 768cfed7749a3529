#include "agent/pmix/pmi_core.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace dslaunch {
namespace {

using pmi_action::Abort;
using pmi_action::Close;
using pmi_action::Fence;
using pmi_action::Reply;

constexpr char kMappingKey[] = "PMI_process_mapping";

Error NotPmi(std::string what) { return {ExitCode::kBadInput, std::move(what)}; }

using Words = std::map<std::string, std::string, std::less<>>;

// Returns the words KEY=VALUE of a line; a word without "=" is a key without a value.
Words WordsOf(std::string_view line) {
  Words words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (word.empty()) continue;
    const size_t equals = std::min(word.find('='), word.size());
    words.emplace(word.substr(0, equals), word.substr(std::min(word.size(), equals + 1)));
  }
  return words;
}

std::string_view WordIn(const Words& words, std::string_view key) {
  const auto found = words.find(key);
  return found == words.end() ? std::string_view() : std::string_view(found->second);
}

int NumberIn(const Words& words, std::string_view key, int otherwise) {
  const std::string_view text = WordIn(words, key);
  int number = otherwise;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && rest == text.data() + text.size() ? number : otherwise;
}

}  // namespace

std::string PmiProcessMapping(const pb::PmixJob& job) {
  std::string mapping = "(vector";
  for (int first = 0; first < job.nodes_size();) {
    const uint32_t ranks = job.nodes(first).ranks();
    int end = first + 1;
    while (end < job.nodes_size() && job.nodes(end).ranks() == ranks) ++end;
    mapping += ",(" + std::to_string(first) + "," + std::to_string(end - first) + "," +
               std::to_string(ranks) + ")";
    first = end;
  }
  return mapping + ")";
}

PmiCore::PmiCore(const pb::PmixJob& job)
    : name_(job.nspace()),
      first_rank_(job.nodes(static_cast<int>(job.node_rank())).first_rank()),
      mapping_(PmiProcessMapping(job)),
      ranks_(job.nodes(static_cast<int>(job.node_rank())).ranks()) {
  for (const pb::PmixNode& node : job.nodes()) world_size_ += node.ranks();
}

pb::PmixRank::State PmiCore::StateOf(uint32_t local_rank) const {
  const Rank& rank = ranks_.at(local_rank);
  return rank.has_finalized ? pb::PmixRank::FINALIZED
         : rank.has_begun   ? pb::PmixRank::JOINED
                            : pb::PmixRank::NOT_JOINED;
}

Result<PmiActions> PmiCore::OnLine(uint32_t local_rank, std::string_view line) {
  Rank& rank = ranks_.at(local_rank);
  const auto reply = [local_rank](std::string text) {
    return PmiActions{Reply{local_rank, std::move(text) + "\n"}};
  };
  if (line.size() > kMaxLineBytes || line.find('\0') != std::string_view::npos)
    return NotPmi("a line that is not valid PMI");
  if (rank.waits || rank.has_ended) return NotPmi("a line from a rank that waits or has ended");
  if (rank.sends_spawn) {
    if (line != "endcmd") return PmiActions();
    rank.sends_spawn = false;
    return reply("cmd=spawn_result rc=-1 msg=ranks_cannot_be_added_to_this_job");
  }
  const Words words = WordsOf(line);
  if (WordIn(words, "mcmd") == "spawn") {
    rank.sends_spawn = true;
    return PmiActions();
  }
  const std::string_view command = WordIn(words, "cmd");
  if (command == "init") {
    if (rank.has_begun) return NotPmi("a second cmd=init");
    if (NumberIn(words, "pmi_version", 0) != 1)
      return reply("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1");
    rank.has_begun = true;
    return reply("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
  }
  if (!rank.has_begun) return NotPmi("a line before the first, cmd=init");
  if (command == "get_maxes") {
    return reply("cmd=maxes rc=0 kvsname_max=256 keylen_max=" + std::to_string(kMaxKeyBytes) +
                 " vallen_max=" + std::to_string(kMaxValueBytes));
  }
  if (command == "get_appnum") return reply("cmd=appnum rc=0 appnum=0");
  if (command == "get_universe_size")
    return reply("cmd=universe_size rc=0 size=" + std::to_string(world_size_));
  if (command == "get_my_kvsname") return reply("cmd=my_kvsname rc=0 kvsname=" + name_);
  if (command == "put") return reply(Put(words));
  if (command == "get") return reply(Get(words));
  if (command == "barrier_in") return EnterBarrier(local_rank);
  if (command == "finalize") {
    rank.has_ended = rank.has_finalized = true;
    return reply("cmd=finalize_ack rc=0");
  }
  if (command == "abort") {
    rank.has_ended = true;  // a rank that called MPI_Abort waits to be killed
    return PmiActions{Abort{first_rank_ + local_rank, NumberIn(words, "exitcode", 1)}};
  }
  for (const std::string name : {"publish", "unpublish", "lookup"}) {
    if (command == name + "_name")
      return reply("cmd=" + name + "_result rc=-1 msg=names_are_not_published_by_dslaunch");
  }
  return NotPmi("a request that PMI-1 does not have");
}

std::string PmiCore::Put(const Words& words) {
  const std::string_view key = WordIn(words, "key");
  const std::string_view value = WordIn(words, "value");
  if (key.empty() || key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes)
    return "cmd=put_result rc=-1 msg=key_or_value_too_long";
  if (bytes_ + key.size() + value.size() > kMaxBytes)
    return "cmd=put_result rc=-1 msg=the_ranks_of_a_node_put_too_much";
  bytes_ += key.size() + value.size();
  values_.insert_or_assign(std::string(key), std::string(value));
  pb::PmiValue& one = *new_.add_values();
  one.set_key(std::string(key));
  one.set_value(std::string(value));
  return "cmd=put_result rc=0 msg=success";
}

std::string PmiCore::Get(const Words& words) const {
  const std::string_view key = WordIn(words, "key");
  const auto found = values_.find(key);
  if (found != values_.end()) return "cmd=get_result rc=0 msg=success value=" + found->second;
  // Without a mapping, a library determines by itself which ranks share a node, so a mapping that
  // is too long is omitted.
  if (key == kMappingKey && mapping_.size() <= kMaxValueBytes)
    return "cmd=get_result rc=0 msg=success value=" + mapping_;
  return "cmd=get_result rc=-1 msg=no_rank_has_put_this_key value=unknown";
}

PmiActions PmiCore::EnterBarrier(uint32_t local_rank) {
  ranks_[local_rank].waits = true;
  if (is_broken_) return BreakBarrier();
  if (!std::ranges::all_of(ranks_, &Rank::waits)) return {};
  return {Fence{std::exchange(new_, {}).SerializeAsString()}};
}

PmiActions PmiCore::BreakBarrier() {
  is_broken_ = true;
  PmiActions actions;
  for (uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    if (std::exchange(ranks_[local_rank].waits, false)) actions.push_back(Close{local_rank});
  }
  return actions;
}

PmiActions PmiCore::OnClosed(uint32_t local_rank) {
  Rank& rank = ranks_.at(local_rank);
  rank.waits = false;
  if (!std::exchange(rank.has_ended, true)) return BreakBarrier();
  return {};
}

PmiActions PmiCore::OnFenceEnd(const std::string& data, const std::string& failure) {
  pb::PmiValues all;  // concatenated messages of several nodes form one message
  if (!failure.empty() || !all.ParseFromString(data)) return BreakBarrier();
  for (pb::PmiValue& one : *all.mutable_values()) {
    const bool is_plain =
        !one.key().empty() && one.key().size() <= kMaxKeyBytes &&
        one.value().size() <= kMaxValueBytes &&
        one.value().find_first_of(std::string_view(" \n\0", 3)) == std::string::npos;
    if (!is_plain) return BreakBarrier();
    values_.insert_or_assign(std::move(*one.mutable_key()), std::move(*one.mutable_value()));
  }
  PmiActions actions;
  for (uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    if (std::exchange(ranks_[local_rank].waits, false))
      actions.push_back(Reply{local_rank, "cmd=barrier_out rc=0\n"});
  }
  return actions;
}

}  // namespace dslaunch
