#include "agent/host/nvidia_smi.h"

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "agent/host/program.h"
#include "base/errno_text.h"
#include "base/exit_code.h"
#include "base/os/brief_run.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

// Returns "13.0" for a text with the line "CUDA Version        : 13.0"; empty if there is no such
// line.
std::string CudaVersion(std::string_view version) {
  while (!version.empty()) {
    const std::string_view line = TakeLine(version);
    const size_t colon = line.find(':');
    if (!line.starts_with("CUDA") || colon == std::string_view::npos) continue;
    std::string_view rest = line.substr(colon + 1);
    return SanitizeForTerminal(TakeWord(rest));
  }
  return "";
}

Result<std::string> OutputOf(const BriefRun& run) {
  const auto fail = [](const std::string& why) {
    return Error{ExitCode::kUnavailable, "nvidia-smi: " + why};
  };
  if (run.end == BriefRun::End::kNotStarted) return fail(ErrnoText(run.number));
  if (run.end == BriefRun::End::kTimedOut) return fail("the driver does not answer");
  if (run.end == BriefRun::End::kSignalled)
    return fail("it was ended by " + SignalName(run.number));
  if (run.number == 0) return run.output;
  std::string_view rest = run.output;
  const std::string said = SanitizeForTerminal(TakeLine(rest));
  return fail(said.empty() ? "exit code " + std::to_string(run.number) : said);
}

}  // namespace

std::string FindNvidiaSmi() {
  const Result<std::string> found = FindExecutable("nvidia-smi", NodeEnvironment(), "/", "");
  return found.ok() ? *found : "";
}

Result<std::string> AskNvidiaSmi(const std::string& nvidia_smi, std::vector<std::string> arguments,
                                 milliseconds patience) {
  arguments.insert(arguments.begin(), nvidia_smi);
  auto promise = std::make_shared<std::promise<BriefRun>>();
  std::future<BriefRun> answer = promise->get_future();
  std::thread([arguments = std::move(arguments), promise, deadline = Deadline::After(patience)] {
    promise->set_value(RunBriefly(arguments, NodeEnvironment(), deadline));
  }).detach();
  // The thread's own result on timeout has more detail, so this waits a little longer than the
  // thread. The kernel may be unable to end the program, so this does not wait for the thread's
  // end.
  if (answer.wait_for(patience + milliseconds(200)) == std::future_status::ready)
    return OutputOf(answer.get());
  return OutputOf({BriefRun::End::kTimedOut, 0, ""});
}

std::string_view TakeCsvField(std::string_view& line, bool last) {
  const size_t end = last ? std::string_view::npos : line.find(", ");
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 2);
  return field;
}

uint64_t BytesOfMebibytes(std::string_view field) {
  constexpr uint64_t kMebibyte = 1 << 20;
  return TakeNumber(field) * kMebibyte;
}

pb::Gpus ReadGpus(const std::string& nvidia_smi, milliseconds patience) {
  if (nvidia_smi.empty()) return {};
  const Deadline deadline = Deadline::After(patience);
  const Result<std::string> gpus =
      AskNvidiaSmi(nvidia_smi,
                   {"--query-gpu=driver_version,memory.total,memory.used,uuid,name",
                    "--format=csv,noheader,nounits"},
                   patience);
  if (!gpus.ok()) {
    pb::Gpus report;
    report.set_trouble(gpus.error().message);
    return report;
  }
  const Result<std::string> version = AskNvidiaSmi(nvidia_smi, {"--version"}, deadline.Left());
  return ParseNvidiaSmi(*gpus, version.ok() ? *version : "");
}

pb::Gpus ParseNvidiaSmi(std::string_view gpus, std::string_view version) {
  pb::Gpus parsed;
  parsed.set_cuda(CudaVersion(version));
  while (!gpus.empty()) {
    std::string_view line = TakeLine(gpus);
    const std::string_view driver = TakeCsvField(line);
    const std::string_view total = TakeCsvField(line), used = TakeCsvField(line);
    const std::string_view uuid = TakeCsvField(line), name = TakeCsvField(line, true);
    if (name.empty()) continue;
    parsed.set_driver(SanitizeForTerminal(driver));
    pb::Gpu& gpu = *parsed.add_installed();
    gpu.set_name(SanitizeForTerminal(name));
    gpu.set_uuid(SanitizeForTerminal(uuid));
    gpu.set_memory_bytes(BytesOfMebibytes(total));
    gpu.set_memory_used_bytes(BytesOfMebibytes(used));
  }
  return parsed;
}

}  // namespace dslaunch
