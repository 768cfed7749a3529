#include "dslaunch/program.h"

#include <ATen/ops/full.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/exit_code.h"
#include "base/text/sanitize.h"
#include "proto/contract/worker_env.h"
#include "trainer/base/failure_exit.h"
#include "trainer/base/log.h"
#include "trainer/base/program_end.h"
#include "trainer/base/stop.h"
#include "trainer/train/report.h"

namespace dslaunch {
namespace {

std::atomic<bool> g_told_to_stop{false};

std::string OwnRank() {
  const char* rank = std::getenv("RANK");
  return rank != nullptr ? rank : "0";
}

// Returns the descriptor of the status pipe; -1 without a launcher, because only the launcher
// provides the pipe.
int StatusFd() {
  const auto env = WorkerEnv::FromEnviron(std::getenv);
  return env ? env->status_fd : -1;
}

void PrintFailure(const TrainError& error) {
  PrintError(std::string(program_invocation_short_name) + ": rank " + OwnRank() + ": " +
             SanitizeForTerminal(error.what()));
}

}  // namespace

int Main(const std::function<void()>& fn) {
  SetFailureExit([](const TrainError& error) {
    PrintFailure(error);
    std::_Exit(error.exit_code());
  });
  int code = 0;
  try {
    fn();
    if (g_told_to_stop) code = ToInt(ExitCode::kPreempted);
  } catch (...) {
    const TrainError error = ExplainException();
    code = error.exit_code();
    // kPreempted means that all ranks stopped at the same point on request and no rank waits for
    // another, so it is not a failure.
    if (error.code() != ExitCode::kPreempted) {
      program_failed = true;
      PrintFailure(error);
    }
  }
  std::cout.flush();
  std::fflush(nullptr);
  return code;
}

bool StopRequested(const ProcessGroup& group) {
  static const bool caught = [] {
    CatchStopSignals();
    return true;
  }();
  (void)caught;
  const bool mine = CurrentStopRequest(std::nullopt) != StopRequest::kNone;
  at::Tensor requests = at::full({1}, mine ? 1 : 0, at::kLong);
  group.AllReduce(requests, ReduceOp::kMax);
  const bool stop = requests.item<int64_t>() != 0;
  if (stop) g_told_to_stop = true;
  return stop;
}

struct Reporter::Impl {
  StatusPipe pipe{StatusFd()};
};

Reporter::Reporter() : impl_(std::make_unique<Impl>()) { impl_->pipe.Ready(); }
Reporter::~Reporter() = default;
Reporter::Reporter(Reporter&&) noexcept = default;

void Reporter::Step(const Progress& progress) {
  StatusLine line;
  line.event = StatusLine::Event::kStep;
  line.step = progress.step;
  line.total_steps = progress.total_steps;
  line.loss = progress.loss;
  line.samples_per_s = progress.samples_per_s;
  line.tokens_per_s = progress.tokens_per_s;
  impl_->pipe.Step(line);
}

void Reporter::Evaluated(int64_t step, const std::vector<std::pair<std::string, double>>& results) {
  impl_->pipe.Evaluated(step, results);
}

void Reporter::Saving(int64_t step) { impl_->pipe.Saving(step); }

void Reporter::Saved(int64_t step) { impl_->pipe.Saved(step); }

}  // namespace dslaunch
