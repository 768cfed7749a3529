// The exchanges that ranks wait for, and whether these waits can end. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// An exchange between ranks, which completes on no member before all of them have begun it.
struct Exchange {
  std::string what;    // "the parameters of fc1", "an all-reduce with ranks 0, 2"
  int64_t number = 0;  // counts exchanges with this name, from 1
  // The ranks that take part, as indices in the list of all ranks; empty: all. Exchanges with other
  // members have other names.
  std::vector<size_t> members = {};
  bool operator==(const Exchange&) const = default;
};

struct CollectiveProgress {
  std::optional<Exchange> awaited;       // nullopt: the rank does not wait for an exchange
  std::map<std::string, int64_t> begun;  // number of exchanges begun, by name
  bool knows = false;                    // the rank knows that its wait cannot end, and will exit
  bool operator==(const CollectiveProgress&) const = default;
};

// Progress as text for another rank of this program, and back.
std::string FormatProgress(const CollectiveProgress& place);
CollectiveProgress ParseProgress(const std::string& text);

// Returns the ranks that can never continue, ascending: each waits for an exchange that another one
// of them, a member of the exchange, has not begun. A rank that waits begins nothing, so `places`
// may be from different times: a rank that is returned is stuck for certain, however slow the
// network is.
std::vector<size_t> FindStuck(const std::vector<CollectiveProgress>& places);

// Returns a text with the wait of each rank. `names`: see ByRank.
std::string DescribeStuck(const std::vector<CollectiveProgress>& places,
                          const std::vector<size_t>& names = {});

// Returns a text for `rank`, which has waited for `waited`, with the ranks that are known not to
// have started the exchange.
std::string DescribeLate(const std::vector<CollectiveProgress>& places, size_t rank,
                         std::chrono::milliseconds waited, const std::vector<size_t>& names = {});

}  // namespace dslaunch
