#include "trainer/program/trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <filesystem>

#include "trainer/program/report.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

namespace profiler = torch::autograd::profiler;

torch::profiler::impl::ProfilerConfig Config() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO);
}

const std::set<torch::profiler::impl::ActivityType> kActivities = {
    torch::profiler::impl::ActivityType::CPU};

}  // namespace

StepTrace::StepTrace(const std::string& folder, int rank)
    : file_(folder + "/rank_" + std::to_string(rank) + ".json"), rank_(rank) {
  // The profiler's library reports every machine without a GPU as an error.
  setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw TrainError(ExitCode::kIo, "run.trace: " + folder + " cannot be made: " + error.message());
  }
}

void StepTrace::BeforeStep(int64_t index) {
  if (TracePhaseOf(index) == TracePhase::kWarmUp) profiler::prepareProfiler(Config(), kActivities);
  if (TracePhaseOf(index) != TracePhase::kFirst) return;
  profiler::enableProfiler(Config(), kActivities);
  recording_ = true;
}

void StepTrace::AfterStep(int64_t index) {
  if (TracePhaseOf(index) == TracePhase::kLast) Save();
}

void StepTrace::Finish() {
  if (recording_) Save();
  if (rank_ != 0) return;
  PrintLine(saved_ ? "the trace of rank 0 is " + file_ + ", those of the other ranks are beside it"
                   : "no trace: it begins at the third step of a run");
}

void StepTrace::Save() {
  recording_ = false;
  const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
  result->save(file_);
  std::error_code error;
  saved_ = std::filesystem::file_size(file_, error) > 0 && !error;
  if (!saved_) {
    throw TrainError(ExitCode::kIo, "run.trace: cannot write " + file_);
  }
}

}  // namespace dslaunch
