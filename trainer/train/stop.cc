#include "trainer/train/stop.h"

#include <atomic>
#include <csignal>

namespace dslaunch {
namespace {

std::atomic<bool> g_sigterm{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler must not wait");

}  // namespace

void CatchSigterm() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_sigterm = true; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

StopRequest CurrentStopRequest(std::optional<Clock::time_point> deadline) {
  if (g_sigterm) return StopRequest::kSigterm;
  return deadline && Clock::now() >= *deadline ? StopRequest::kTimeLimit : StopRequest::kNone;
}

std::string StopReason(const StopDecision& stop) {
  return stop.request == StopRequest::kSigterm ? "SIGTERM (rank " + std::to_string(stop.rank) + ")"
                                               : "run.time_limit_s";
}

}  // namespace dslaunch
