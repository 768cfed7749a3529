#include "trainer/comm/collective_progress.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/by_rank.h"

namespace dslaunch {
namespace {

using nlohmann::json;

constexpr char kRule[] =
    "every rank must run the same forward and backward passes through the same modules, also to "
    "evaluate";

bool Takes(const Exchange& exchange, size_t rank) {
  return exchange.members.empty() ||
         std::ranges::find(exchange.members, rank) != exchange.members.end();
}

bool HasBegun(const CollectiveProgress& place, const Exchange& exchange) {
  const auto found = place.begun.find(exchange.what);
  return found != place.begun.end() && found->second >= exchange.number;
}

}  // namespace

std::string FormatProgress(const CollectiveProgress& place) {
  json text = {{"begun", place.begun}, {"knows", place.knows}};
  if (place.awaited) {
    text["awaited"] = {place.awaited->what, place.awaited->number, place.awaited->members};
  }
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

CollectiveProgress ParseProgress(const std::string& text) {
  const json parsed = json::parse(text);
  CollectiveProgress place;
  parsed.at("begun").get_to(place.begun);
  parsed.at("knows").get_to(place.knows);
  if (const auto awaited = parsed.find("awaited"); awaited != parsed.end()) {
    place.awaited = {awaited->at(0).get<std::string>(), awaited->at(1).get<int64_t>(),
                     awaited->at(2).get<std::vector<size_t>>()};
  }
  return place;
}

std::vector<size_t> FindStuck(const std::vector<CollectiveProgress>& places) {
  std::vector<size_t> stuck;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].awaited) stuck.push_back(rank);
  }
  // If all remaining members have begun a rank's exchange, the rank continues and may then begin
  // the exchanges that other ranks wait for. It is therefore removed from the stuck ranks.
  for (bool changed = true; changed;) {
    const std::vector<size_t> before = stuck;
    changed = std::erase_if(stuck, [&](size_t rank) {
                const Exchange& awaited = *places[rank].awaited;
                return std::ranges::all_of(before, [&](size_t other) {
                  return !Takes(awaited, other) || HasBegun(places[other], awaited);
                });
              }) > 0;
  }
  return stuck;
}

std::string DescribeStuck(const std::vector<CollectiveProgress>& places,
                          const std::vector<size_t>& names) {
  std::vector<std::string> waits;
  for (const CollectiveProgress& place : places) {
    waits.push_back(place.awaited ? "waiting for " + place.awaited->what : "still computing");
  }
  return "the ranks run different operations and would wait for each other forever (" +
         ByRank(
             waits, [](const std::string& wait) { return wait; }, names) +
         "); " + kRule;
}

std::string DescribeLate(const std::vector<CollectiveProgress>& places, size_t rank,
                         std::chrono::milliseconds waited, const std::vector<size_t>& names) {
  const Exchange& awaited = *places[rank].awaited;
  std::vector<size_t> missing;
  for (size_t other = 0; other < places.size(); ++other) {
    if (Takes(awaited, other) && !HasBegun(places[other], awaited)) missing.push_back(other);
  }
  const std::string seconds =
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) + " s";
  if (missing.empty()) {
    return "waited " + seconds + " for " + awaited.what +
           ", which every rank has started: the network between the ranks does not deliver it";
  }
  return "waited " + seconds + " for " + awaited.what + ", which " +
         RankList(Named(missing, names)) + (missing.size() == 1 ? " has" : " have") +
         " not started; " + kRule;
}

}  // namespace dslaunch
