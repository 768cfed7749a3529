#include "trainer/base/stop.h"

#include <atomic>
#include <csignal>

namespace dslaunch {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait");

}  // namespace

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { g_signal = signal; };
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

StopRequest CurrentStopRequest(std::optional<Clock::time_point> deadline) {
  if (const int signal = g_signal; signal != 0)
    return signal == SIGINT ? StopRequest::kSigint : StopRequest::kSigterm;
  return deadline && Clock::now() >= *deadline ? StopRequest::kTimeLimit : StopRequest::kNone;
}

std::string StopReason(const StopDecision& stop) {
  const std::string rank = " (rank " + std::to_string(stop.rank) + ")";
  if (stop.request == StopRequest::kSigterm) return "SIGTERM" + rank;
  return stop.request == StopRequest::kSigint ? "SIGINT" + rank : "run.time_limit_s";
}

}  // namespace dslaunch
