#include "cli/core/job_goodput.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

using enum GoodputBucket;

uint64_t MicrosecondsFrom(Clock::time_point from, Clock::time_point to) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
  return static_cast<uint64_t>(std::max<int64_t>(passed, 0));
}

GoodputTimes ToTimes(const pb::RankGoodput& rank) {
  GoodputTimes times;
  const auto size = std::min(static_cast<size_t>(rank.us_size()), kGoodputBuckets);
  std::copy_n(rank.us().begin(), size, times.us.begin());
  return times;
}

// Changes `times` so that their sum is `whole`. Adds a missing amount to the bucket `missing`, or
// reduces the largest times by an excess, which results from a different clock.
void MakeSum(GoodputTimes& times, uint64_t whole, GoodputBucket missing) {
  uint64_t sum = times.Sum();
  if (sum < whole) times[missing] += whole - sum;
  while (sum > whole) {
    uint64_t& largest = *std::ranges::max_element(times.us);
    const uint64_t taken = std::min(largest, sum - whole);
    largest -= taken;
    sum -= taken;
  }
}

}  // namespace

JobGoodput::JobGoodput(const LaunchPlan& plan, Clock::time_point now)
    : started_at_(now), planned_ranks_(static_cast<uint32_t>(plan.world_size())) {
  for (const Host& host : plan.nodes) {
    Node& node = nodes_.emplace_back();
    node.slots.resize(static_cast<size_t>(host.slots));
    node.counts = !host.spare;
    node.since = now;
  }
}

void JobGoodput::OnEvent(size_t node, const pb::NodeEvent& event, Clock::time_point now) {
  if (node >= nodes_.size()) return;
  if (event.has_started()) OnStarted(node, event.started(), now);
  if (event.has_goodput()) OnReport(nodes_[node], event.goodput(), now);
  if (!event.has_done()) return;
  OnReport(nodes_[node], event.done().goodput(), now);
  nodes_[node].is_over = true;
}

void JobGoodput::OnStarted(size_t index, const pb::Started& started, Clock::time_point now) {
  ranks_ = std::max(ranks_, started.world_size());
  if (started.attempt() > attempt_) {
    // Nodes without ranks in the first attempt are not counted.
    const bool is_first = attempt_ == 0;
    attempt_ = started.attempt();
    const std::vector<uint32_t> members = IndexesOf(started.members(), nodes_.size());
    for (size_t other = 0; other < nodes_.size(); ++other) {
      Node& node = nodes_[other];
      if (!node.counts || std::ranges::binary_search(members, static_cast<uint32_t>(other)))
        continue;
      if (!is_first) AddTimes(node, now, settled_);
      node.counts = false;
    }
  }
  Node& node = nodes_[index];
  if (!node.counts) {
    // The node was a spare, or has reconnected. Its earlier times are settled already, or belong to
    // no rank, so counting starts now.
    node.counts = node.reported = true;
    node.since = now;
    for (Slot& slot : node.slots) slot = {};
    OnReport(node, started.goodput(), now);
    for (Slot& slot : node.slots) slot.base = slot.newest;
  } else {
    OnReport(node, started.goodput(), now);
  }
}

void JobGoodput::OnReport(Node& node, const pb::NodeGoodput& goodput, Clock::time_point now) {
  if (std::cmp_not_equal(goodput.ranks_size(), node.slots.size())) return;
  node.is_over = false;
  const uint64_t whole = MicrosecondsFrom(node.since, now);
  for (size_t i = 0; i < node.slots.size(); ++i) {
    Slot& slot = node.slots[i];
    const GoodputTimes newest = ToTimes(goodput.ranks(static_cast<int>(i)));
    if (!node.reported) {
      MakeSum(slot.before, whole - std::min(whole, newest.Sum()), kConnect);
    } else if (newest.Sum() < slot.newest.Sum()) {  // the report is from another agent of the node
      for (size_t k = 0; k < kGoodputBuckets; ++k)
        slot.before.us[k] += slot.newest.us[k] - std::min(slot.newest.us[k], slot.base.us[k]);
      slot.base = {};
      MakeSum(slot.before, whole - std::min(whole, newest.Sum()), kLost);
    }
    slot.newest = newest;
  }
  node.reported = true;
}

void JobGoodput::AddTimes(const Node& node, Clock::time_point now, GoodputTimes& total) const {
  const uint64_t whole = MicrosecondsFrom(node.since, now);
  const GoodputBucket rest = node.is_over                      ? kTeardown
                             : !node.reported && attempt_ == 0 ? kConnect
                                                               : kLost;
  for (const Slot& slot : node.slots) {
    GoodputTimes times = slot.before;
    // A later report may correct a value downwards, even below the base, so the difference is at
    // least 0.
    for (size_t k = 0; k < kGoodputBuckets; ++k)
      times.us[k] += slot.newest.us[k] - std::min(slot.newest.us[k], slot.base.us[k]);
    MakeSum(times, whole, rest);
    total += times;
  }
}

Goodput JobGoodput::At(Clock::time_point now) const {
  Goodput goodput;
  goodput.wall_us = MicrosecondsFrom(started_at_, now);
  goodput.ranks = ranks_ > 0 ? ranks_ : planned_ranks_;
  goodput.times = settled_;
  for (const Node& node : nodes_) {
    if (node.counts) AddTimes(node, now, goodput.times);
  }
  // A rank may have had no node for some time, which counts as lost.
  MakeSum(goodput.times, goodput.wall_us * goodput.ranks, kLost);
  return goodput;
}

std::optional<Goodput> SumOfNodes(const std::vector<const pb::NodeGoodput*>& nodes) {
  Goodput goodput;
  for (const pb::NodeGoodput* node : nodes) {
    for (const pb::RankGoodput& rank : node->ranks()) {
      const GoodputTimes times = ToTimes(rank);
      goodput.times += times;
      goodput.wall_us = std::max(goodput.wall_us, times.Sum());
      ++goodput.ranks;
    }
  }
  if (goodput.ranks == 0) return std::nullopt;
  MakeSum(goodput.times, goodput.wall_us * goodput.ranks, kConnect);
  return goodput;
}

}  // namespace dslaunch
