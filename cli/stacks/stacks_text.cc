#include "cli/stacks/stacks_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

using nlohmann::json;

std::vector<pb::RankStacks> AllRanks(const std::vector<NodeStacks>& nodes) {
  std::vector<pb::RankStacks> all;
  for (const NodeStacks& node : nodes) all.insert(all.end(), node.ranks.begin(), node.ranks.end());
  std::ranges::sort(all, {}, [](const pb::RankStacks& stacks) { return stacks.rank(); });
  return all;
}

// Returns the name of a group, such as "rank 3 (node1)" or "ranks 0-2, 4-15".
std::string GroupName(const FoldedStacks& group, const std::vector<NodeStacks>& nodes) {
  const std::string ranks = RanksText(group.ranks);
  if (group.ranks.size() > 1) return ranks;
  for (const NodeStacks& node : nodes) {
    for (const pb::RankStacks& stacks : node.ranks) {
      if (stacks.rank() == group.ranks.front())
        return ranks + " (" + SanitizeForTerminal(node.node) + ")";
    }
  }
  return ranks;
}

std::string TroubleText(const std::vector<NodeStacks>& nodes) {
  std::string text;
  for (const NodeStacks& node : nodes) {
    if (!node.trouble.empty()) text += SanitizeForTerminal(node.trouble) + "\n";
  }
  return text;
}

json ThreadJson(const pb::ThreadStack& thread) {
  json frames = json::array();
  for (const pb::StackFrame& frame : thread.frames()) {
    frames.push_back({{"function", frame.function()},
                      {"file", frame.file()},
                      {"line", frame.line() > 0 ? json(frame.line()) : json()}});
  }
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  constexpr double kMicroseconds = 1e6;
  return {{"tid", thread.tid() > 0 ? json(thread.tid()) : json()},
          {"name", thread.name()},
          {"state", or_null(thread.state())},
          {"call", or_null(thread.call())},
          {"target", or_null(thread.target())},
          {"waits_in", or_null(thread.waits_in())},
          {"cpu_s", static_cast<double>(thread.cpu_us()) / kMicroseconds},
          {"has_gil", thread.has_gil()},
          {"frames", frames}};
}

json RankJson(const std::string& node, const pb::RankStacks& stacks) {
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  json processes = json::array();
  for (const pb::ProcessStacks& process : stacks.processes()) {
    json threads = json::array();
    for (const pb::ThreadStack& thread : process.threads()) threads.push_back(ThreadJson(thread));
    processes.push_back({{"pid", process.pid()},
                         {"command", process.command()},
                         {"python", or_null(process.python())},
                         {"no_python", or_null(process.no_python())},
                         {"no_native", or_null(process.no_native())},
                         {"torn", process.torn()},
                         {"cut", process.cut()},
                         {"threads", threads}});
  }
  constexpr double kMilliseconds = 1e3;
  return {{"rank", stacks.rank()},
          {"node", node},
          {"trouble", or_null(stacks.trouble())},
          {"exchange", or_null(stacks.exchange())},
          {"exchange_s", stacks.exchange().empty()
                             ? json()
                             : json(static_cast<double>(stacks.exchange_ms()) / kMilliseconds)},
          {"cut", stacks.cut()},
          {"processes", processes}};
}

}  // namespace

std::string StacksText(const std::vector<NodeStacks>& nodes) {
  const std::vector<pb::RankStacks> all = AllRanks(nodes);
  std::string text;
  for (const FoldedStacks& group : FoldStacks(all))
    text += GroupName(group, nodes) + "\n" + ListStacks(*group.stacks);
  text += TroubleText(nodes);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string StacksSummary(const std::vector<NodeStacks>& nodes) {
  constexpr size_t kFrames = 4;
  const std::vector<pb::RankStacks> all = AllRanks(nodes);
  std::string text;
  for (const FoldedStacks& group : FoldStacks(all)) {
    std::string place;
    const auto add = [&place](const std::string& part) {
      if (!part.empty()) place += (place.empty() ? "" : ", ") + part;
    };
    if (const pb::ThreadStack* thread = ShownThread(*group.stacks)) {
      add(FramesText(*thread, kFrames));
      add(KernelText(*thread));
    }
    if (!group.stacks->exchange().empty())
      add("waits for " + SanitizeForTerminal(group.stacks->exchange()));
    add(SanitizeForTerminal(group.stacks->trouble()));
    text += "\n  " + GroupName(group, nodes) + ": " + place;
  }
  for (const NodeStacks& node : nodes) {
    if (!node.trouble.empty()) text += "\n  " + SanitizeForTerminal(node.trouble);
  }
  return text.empty() ? "no rank runs" : text.substr(1);
}

std::string StacksJson(const std::string& job_id, const std::vector<NodeStacks>& nodes) {
  std::map<uint32_t, json> ranks;
  json missing = json::array();
  for (const NodeStacks& node : nodes) {
    for (const pb::RankStacks& stacks : node.ranks)
      ranks[stacks.rank()] = RankJson(node.node, stacks);
    if (!node.trouble.empty()) missing.push_back({{"node", node.node}, {"reason", node.trouble}});
  }
  json ascending = json::array();
  for (const auto& [rank, fields] : ranks) ascending.push_back(fields);
  const json all = {{"job", job_id}, {"ranks", ascending}, {"missing", missing}};
  // Names of files may contain bytes that are not UTF-8, so such bytes are replaced.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace dslaunch
