#include "trainer/profile/step_profiler.h"

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "proto/contract/rank_files.h"
#include "trainer/base/format.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_files.h"
#include "trainer/base/train_error.h"
#include "trainer/device/streams.h"

// The header that declares this function, torch/csrc/profiler/kineto_shim.h, needs another include
// folder, so the declaration is repeated.
namespace torch::autograd::profiler {
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);
}

namespace dslaunch {
namespace {

namespace fs = std::filesystem;
namespace profiler = torch::autograd::profiler;

constexpr char kAllocation[] = "[memory]";
constexpr auto kDeviceAnnotation =
    static_cast<uint8_t>(libkineto::ActivityType::GPU_USER_ANNOTATION);

torch::profiler::impl::ProfilerConfig Config() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO,
                                               /*report_input_shapes=*/true,
                                               /*profile_memory=*/true);
}

std::set<torch::profiler::impl::ActivityType> Activities(c10::Device device) {
  using torch::profiler::impl::ActivityType;
  if (device.is_cpu()) return {ActivityType::CPU};
  return {ActivityType::CPU, ActivityType::CUDA};
}

// Replaces the times of exchanges by the times of their kernels, if they have any, because the call
// that starts a kernel does not wait for it. An operation's kernels share its bytes equally.
std::vector<Exchanged> OnDevice(const std::vector<Exchanged>& exchanges,
                                const std::vector<RecordedKernel>& kernels,
                                std::vector<Interval>& compute) {
  std::map<std::string, int64_t> bytes, calls;
  for (const Exchanged& one : exchanges) bytes[one.kind] += one.bytes;
  std::vector<Exchanged> timed;
  compute.clear();
  for (const RecordedKernel& kernel : kernels) {
    const Interval time = {kernel.begin_ns, kernel.end_ns};
    if (const std::optional<std::string> kind = KernelCommunicationKind(kernel.name)) {
      ++calls[*kind];
      timed.push_back({*kind, 0, time});
    } else {
      compute.push_back(time);
    }
  }
  for (Exchanged& one : timed) one.bytes = bytes[one.kind] / calls[one.kind];
  return timed;
}

// Returns the size in bytes of the dtype that the profiler calls `name`.
int64_t BytesOfDtype(const std::string& name) {
  if (name == "float" || name == "int") return 4;
  if (name == "c10::BFloat16" || name == "c10::Half" || name == "short" || name == "short int") {
    return 2;
  }
  return name == "double" || name == "long" || name == "long int" ? 8 : 1;
}

int64_t BytesOfInputs(const profiler::KinetoEvent& event) {
  int64_t bytes = 0;
  if (!event.hasShapes() || !event.hasTypes()) return bytes;
  for (size_t i = 0; i < event.shapes().size() && i < event.dtypes().size(); ++i) {
    if (event.dtypes()[i].empty()) continue;
    int64_t elements = 1;
    for (const int64_t size : event.shapes()[i]) elements *= size;
    bytes += elements * BytesOfDtype(event.dtypes()[i]);
  }
  return bytes;
}

RecordedEvent ToRecorded(const profiler::KinetoEvent& event) {
  const auto begin = static_cast<int64_t>(event.startNs());
  return {.name = event.name(),
          .thread = event.startThreadId(),
          .begin_ns = begin,
          .end_ns = begin + static_cast<int64_t>(event.durationNs()),
          .async = event.isAsync(),
          .correlation = event.correlationId()};
}

}  // namespace

StepProfiler::StepProfiler(Options options) : options_(std::move(options)) {
  // Kineto would report an error on every machine without a GPU, so its log is turned off.
  setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  if (options_.trace_folder.empty()) return;
  std::error_code error;
  fs::create_directories(options_.trace_folder, error);
  if (error) {
    throw TrainError(ExitCode::kIo, "run.trace: " + options_.trace_folder +
                                        ": cannot create the folder: " + error.message());
  }
}

void StepProfiler::BeforeStep(int64_t index) {
  const ProfilePhase phase = ProfilePhaseOf(options_.steps, index);
  if (phase == ProfilePhase::kOff) return;
  if (!prepared_) {
    profiler::prepareProfiler(Config(), Activities(options_.device()));
    prepared_ = true;
  }
  if (phase != ProfilePhase::kActive) return;
  if (!recording_) {
    no_meter_.emplace();
    // Pending work belongs to earlier steps, so it must end before the recording begins.
    AwaitStream(options_.device());
    profiler::enableProfiler(Config(), Activities(options_.device()));
    recording_ = true;
    start_ = Clock::now();
  }
  // A step lasts until the next step begins. Tools for PyTorch's traces search for the name
  // ProfilerStep#.
  step_.reset();
  step_.emplace(at::RecordScope::USER_SCOPE);
  step_->before("ProfilerStep#" + std::to_string(index));
  ++steps_;
}

void StepProfiler::AfterStep(int64_t index) {
  if (recording_ && ProfilePhaseOf(options_.steps, index + 1) == ProfilePhase::kOff) Stop();
}

void StepProfiler::Finish() {
  if (recording_) Stop();
  if (options_.rank != 0) return;
  if (!result_) {
    PrintLine(Format("no profile: profiling starts at step %lld, after the last step of this run",
                     static_cast<long long>(options_.steps.wait + options_.steps.warmup + 1)));
    return;
  }
  if (options_.table) PrintLine(ProfileText(*result_, options_.steps.rows));
  if (!options_.trace_folder.empty()) {
    PrintLine("the trace of rank 0 is " + options_.trace_folder +
              "/rank_0.json, the traces of the other ranks are in the same folder");
  }
}

void StepProfiler::Stop() {
  // The device may be a step behind the host, so the recording must wait for it.
  AwaitStream(options_.device());
  step_.reset();
  recording_ = false;
  const double wall_s = std::chrono::duration<double>(Clock::now() - start_).count();
  profiler::addMetadataJson("distributedInfo", nlohmann::json({{"backend", options_.backend()},
                                                               {"rank", options_.rank},
                                                               {"world_size", options_.world_size}})
                                                   .dump());
  const std::unique_ptr<profiler::ProfilerResult> recorded = profiler::disableProfiler();
  no_meter_.reset();
  result_ = Evaluate(*recorded);
  result_->wall_s = wall_s;
  if (options_.add_memory) options_.add_memory(*result_);
  SaveTrace(*recorded);
  if (!options_.rank_dir.empty()) WriteRankFile(kProfileFileName, ProfileJson(*result_));
}

ProfileResult StepProfiler::Evaluate(const profiler::ProfilerResult& recorded) const {
  std::vector<RecordedEvent> events;
  std::vector<RecordedAllocation> allocations;
  std::vector<Exchanged> exchanges;
  std::vector<Interval> compute;
  std::vector<RecordedKernel> kernels;
  for (const profiler::KinetoEvent& event : recorded.events()) {
    if (event.name() == kAllocation) {
      allocations.push_back({.thread = event.startThreadId(),
                             .at_ns = static_cast<int64_t>(event.startNs()),
                             .bytes = event.nBytes()});
      continue;
    }
    RecordedEvent one = ToRecorded(event);
    if (event.deviceType() != c10::kCPU) {
      // The annotation of a phase on the device is not a kernel, so it is skipped.
      if (event.activityType() == kDeviceAnnotation) continue;
      kernels.push_back({one.name, event.linkedCorrelationId(), one.begin_ns, one.end_ns});
      continue;
    }
    if (const std::optional<std::string> kind = CommunicationKind(one.name)) {
      exchanges.push_back({*kind, BytesOfInputs(event), {one.begin_ns, one.end_ns}});
      one.async = true;  // the exchange may end after events that began later
    } else if (one.name.starts_with("aten::")) {
      compute.push_back({one.begin_ns, one.end_ns});
    }
    events.push_back(std::move(one));
  }
  if (!kernels.empty()) exchanges = OnDevice(exchanges, kernels, compute);
  return {.rank = options_.rank,
          .steps = steps_,
          .rows = OperatorRows(std::move(events), allocations, options_.steps.sort_by, kernels),
          .communication = Summarize(exchanges, std::move(compute))};
}

void StepProfiler::SaveTrace(profiler::ProfilerResult& recorded) const {
  const std::string in_rank_dir = options_.rank_dir + "/" + kTraceFileName;
  const bool asked_for = !options_.trace_folder.empty();
  if (!asked_for && options_.rank_dir.empty()) return;
  const std::string file =
      asked_for ? options_.trace_folder + "/rank_" + std::to_string(options_.rank) + ".json"
                : in_rank_dir;
  recorded.save(file);  // can be called only once, and does not report errors
  std::error_code error;
  const bool saved = fs::file_size(file, error) > 0 && !error;
  if (asked_for && !saved) throw TrainError(ExitCode::kIo, "run.trace: cannot write " + file);
  if (asked_for && !options_.rank_dir.empty()) {
    fs::copy_file(file, in_rank_dir, fs::copy_options::overwrite_existing, error);
  }
  if (!options_.rank_dir.empty() && (!saved || error)) {
    PrintLine("the job's report will not contain " + in_rank_dir + ": cannot write it");
  }
}

}  // namespace dslaunch
