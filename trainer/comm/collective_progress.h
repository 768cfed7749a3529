// What each rank waits for, and whether that can ever come. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// Something that every rank has to begin before it can be complete on any.
struct Exchange {
  std::string what;    // "the parameters of fc1", "an all-reduce"
  int64_t number = 0;  // counts those with this name, from 1
  bool operator==(const Exchange&) const = default;
};

struct CollectiveProgress {
  std::optional<Exchange> awaited;       // nullopt: it computes, sleeps or writes
  std::map<std::string, int64_t> begun;  // how many exchanges of each name
  bool knows = false;                    // it has seen that it waits in vain, and will end
  bool operator==(const CollectiveProgress&) const = default;
};

// For another rank of this program.
std::string FormatProgress(const CollectiveProgress& place);
CollectiveProgress ParseProgress(const std::string& text);

// The ranks that can never go on: each waits for something that another one of them has yet to
// begin. Ascending. A rank that waits begins nothing, so places may have been taken at different
// times: a rank that is found here is stuck for certain, however slow the network is.
std::vector<size_t> FindStuck(const std::vector<CollectiveProgress>& places);

// Says what each rank waits for. `names` as ByRank has them.
std::string DescribeStuck(const std::vector<CollectiveProgress>& places,
                          const std::vector<size_t>& names = {});

// `rank` has waited for `waited`: names the ranks that have not come, as far as it is known.
std::string DescribeLate(const std::vector<CollectiveProgress>& places, size_t rank,
                         std::chrono::milliseconds waited, const std::vector<size_t>& names = {});

}  // namespace dslaunch
