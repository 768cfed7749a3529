#include "rendezvous/first_cause.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace dslaunch {
namespace {

// Upper limit of a message's delay if the round trip is unknown. With a longer delay, the node's
// heartbeats would be late too, and the node would be lost.
constexpr std::chrono::seconds kUnknownRoundTrip(1);

// Narrows the intervals by the order of the reports of each node. A node reports its failures in
// the order in which they happened, so a failure is not later than the node's next failure.
void UseOrderOfEachNode(std::vector<FailureReport>& reports) {
  std::map<uint32_t, Clock::time_point> latest_start;
  for (FailureReport& report : reports) {
    auto [start, is_first] = latest_start.emplace(report.node, report.earliest);
    if (start->second > report.latest) continue;  // the age shows that the report was late
    start->second = report.earliest = std::max(start->second, report.earliest);
  }
  std::map<uint32_t, Clock::time_point> earliest_end;
  for (auto report = reports.rbegin(); report != reports.rend(); ++report) {
    auto [end, is_last] = earliest_end.emplace(report->node, report->latest);
    if (end->second < report->earliest) continue;
    end->second = report->latest = std::min(end->second, report->latest);
  }
}

std::string Name(const pb::Cause& cause) {
  if (cause.rank() >= 0) return "rank " + std::to_string(cause.rank());
  return cause.kind() == pb::Cause::NODE_LOST ? "the loss of a node" : "what ended the job";
}

bool Is(const FailureReport& report, pb::Cause::PeerFault fault) {
  return report.cause.victim() && report.cause.peer_fault() == fault;
}

}  // namespace

FailureReport ReportOf(const pb::WorkerFailed& failed, uint32_t node, Clock::time_point arrival) {
  const Clock::time_point latest = arrival - ReportedMicroseconds(failed.age_us());
  const std::chrono::microseconds round_trip =
      failed.rtt_us() > 0 ? ReportedMicroseconds(failed.rtt_us()) : kUnknownRoundTrip;
  return {failed.cause(), node, latest - round_trip, latest};
}

FailureReport ReportSince(const pb::Cause& cause, uint32_t node, Clock::time_point since,
                          Clock::time_point now) {
  return {cause, node, since, now};
}

FirstCause ChooseFirstCause(const std::vector<FailureReport>& reports) {
  std::vector<FailureReport> candidates;
  const auto take = [&](auto wanted) {
    if (candidates.empty()) std::ranges::copy_if(reports, std::back_inserter(candidates), wanted);
  };
  take([](const FailureReport& report) {
    return !report.cause.victim() && !report.cause.while_stopping();
  });
  take([](const FailureReport& report) { return !report.cause.victim(); });
  const size_t own = candidates.size();
  take([](const FailureReport& report) { return Is(report, pb::Cause::UNREACHABLE); });
  take([](const FailureReport& report) { return Is(report, pb::Cause::LATE); });
  take([](const FailureReport&) { return true; });
  UseOrderOfEachNode(candidates);

  // The earliest end of an interval. A failure whose interval begins after this time happened later
  // than that one, so it is not the first.
  Clock::time_point first_end = candidates.front().latest;
  for (const FailureReport& report : candidates) first_end = std::min(first_end, report.latest);
  const auto may_be_first = [&](const FailureReport& report) {
    return report.earliest <= first_end;
  };
  const auto first = std::find_if(candidates.begin(), candidates.end(), may_be_first);

  FirstCause result;
  result.cause = first->cause;
  const bool is_unreachable = Is(*first, pb::Cause::UNREACHABLE);
  if (is_unreachable) result.cause.set_victim(false);
  std::set<uint32_t> victims;
  for (const FailureReport& report : reports) {
    const pb::Cause& cause = report.cause;
    // This rank could not connect for the same cause, so it does not count as a victim of the first
    // rank.
    if (is_unreachable && Is(report, pb::Cause::UNREACHABLE)) continue;
    if (cause.victim() && cause.rank() >= 0 && cause.rank() != first->cause.rank())
      victims.insert(static_cast<uint32_t>(cause.rank()));
  }
  result.victims.assign(victims.begin(), victims.end());
  if (reports.size() == 1) {
    result.reason = "nothing else failed";
  } else if (own == 0 && is_unreachable) {
    result.reason = Name(result.cause) + " could not connect, and no rank failed by itself";
  } else if (own == 0) {
    result.reason = "all look like victims; " + Name(result.cause) + " was the first of them";
  } else if (own == 1) {
    result.reason = "the others look like its victims";
  } else if (std::count_if(candidates.begin(), candidates.end(), may_be_first) == 1) {
    result.reason = Name(result.cause) + " failed before the others";
  } else {
    result.reason =
        Name(result.cause) + " was reported first, and nothing shows that another failed before it";
  }
  return result;
}

bool AreRunningRanksOfInterest(const std::vector<FailureReport>& reports) {
  const auto is_victim = [](const FailureReport& report) { return report.cause.victim(); };
  const auto is_late = [](const FailureReport& report) {
    return Is(report, pb::Cause::LATE) || Is(report, pb::Cause::UNREACHABLE);
  };
  return std::ranges::all_of(reports, is_victim) && std::ranges::any_of(reports, is_late);
}

}  // namespace dslaunch
