#include "trainer/comm/explain.h"

#include <algorithm>
#include <array>

namespace dslaunch {
namespace {

template <size_t n>
bool HasAny(std::string_view text, const std::array<std::string_view, n>& words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

constexpr std::array<std::string_view, 7> kFromComm = {"gloo",
                                                       "c10d",
                                                       "TCPStore",
                                                       "socket",
                                                       "store",
                                                       "shared memory of the ranks",
                                                       "connections of the ranks"};
constexpr std::array<std::string_view, 3> kOutOfMemory = {"can't allocate memory", "bad_alloc",
                                                          "out of memory"};
constexpr std::array<std::string_view, 3> kTimeOuts = {"imed out", "imeout ", "Socket Timeout"};
constexpr std::array<std::string_view, 8> kLosses = {
    "Connection closed", "Connection was likely closed",
    "Connection reset",  "Connection refused",
    "Broken pipe",       "Socket closed",
    "has ended",         "has left"};

}  // namespace

CommFailure ClassifyCommFailure(std::string_view what) {
  if (!HasAny(what, kFromComm)) return CommFailure::kNone;
  if (HasAny(what, kTimeOuts)) return CommFailure::kTimedOut;
  return HasAny(what, kLosses) ? CommFailure::kPeerLost : CommFailure::kNone;
}

bool IsNotGathered(std::string_view what) {
  return what.find(kNotGathered) != std::string_view::npos;
}

bool IsOutOfMemory(std::string_view what) { return HasAny(what, kOutOfMemory); }

}  // namespace dslaunch
