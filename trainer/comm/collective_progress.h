// Describes the exchanges that ranks wait for, and decides whether these waits can end. Performs no
// I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// An exchange between ranks. It completes on no member before all members have begun it.
struct Exchange {
  std::string what;    // name of the exchange, such as "the parameters of fc1"
  int64_t number = 0;  // number of the exchange among the exchanges with this name, from 1
  // The ranks that take part, as indices in the list of all ranks; empty if all take part.
  // Exchanges with other members must have other names.
  std::vector<size_t> members = {};
  bool operator==(const Exchange&) const = default;
};

struct CollectiveProgress {
  std::optional<Exchange> awaited;       // nullopt if the rank does not wait for an exchange
  std::map<std::string, int64_t> begun;  // number of exchanges that the rank has begun, by name
  bool knows = false;  // true if the rank has detected that its own wait cannot end
  bool operator==(const CollectiveProgress&) const = default;
};

// Returns progress as text for another rank of this program.
std::string FormatProgress(const CollectiveProgress& place);
// Parses the text of FormatProgress. Throws nlohmann::json::exception for any other text.
CollectiveProgress ParseProgress(const std::string& text);

// Returns the ranks that can never continue, in ascending order: each waits for an exchange of
// which another returned rank is a member that has not begun it. `places` may be from different
// times, because a rank that waits begins nothing. A returned rank is therefore certainly stuck,
// however slow the network is.
std::vector<size_t> FindStuck(const std::vector<CollectiveProgress>& places);

// Returns an error message that lists the wait of each rank. `names` has the numbers of the ranks;
// empty if these equal the indices in `places`.
std::string DescribeStuck(const std::vector<CollectiveProgress>& places,
                          const std::vector<size_t>& names = {});

// Returns an error message for `rank`, which has waited for `waited`. The message names the ranks
// that have not started the exchange as far as is known.
std::string DescribeLate(const std::vector<CollectiveProgress>& places, size_t rank,
                         std::chrono::milliseconds waited, const std::vector<size_t>& names = {});

}  // namespace dslaunch
