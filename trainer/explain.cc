#include "trainer/explain.h"

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

constexpr std::array<std::string_view, 6> kFromComm = {"gloo",     "Gloo",   "c10d",
                                                       "TCPStore", "socket", "store"};
constexpr std::array<std::string_view, 4> kTimeOuts = {"Timed out", "timed out", "Wait timeout",
                                                       "imeout after"};
constexpr std::array<std::string_view, 9> kLosses = {
    "Connection closed", "Connection reset",     "Broken pipe",
    "onnection refused", "recvValueWithTimeout", "Failed to recv",
    "failed to recv",    "Socket closed",        "not connected"};

}  // namespace

CommFailure ClassifyCommFailure(std::string_view what) {
  if (!HasAny(what, kFromComm)) return CommFailure::kNone;
  if (HasAny(what, kTimeOuts)) return CommFailure::kTimedOut;
  return HasAny(what, kLosses) ? CommFailure::kPeerLost : CommFailure::kNone;
}

}  // namespace dslaunch
