#include "agent/host/nvidia_smi.h"

#include <future>
#include <memory>
#include <thread>

#include "agent/host/program.h"
#include "base/errno_text.h"
#include "base/os/brief_run.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

// Removes and returns the next field of a CSV line; the last field extends to the end.
std::string_view TakeField(std::string_view& line, bool last = false) {
  const size_t end = last ? std::string_view::npos : line.find(", ");
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 2);
  return field;
}

// Returns 0 for "[N/A]", which GPUs that share the machine's memory report.
uint64_t BytesOf(std::string_view mebibytes) { return TakeNumber(mebibytes) * kMebibyte; }

// "CUDA Version        : 13.0" -> "13.0"
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

pb::Gpus Trouble(const std::string& why) {
  pb::Gpus gpus;
  gpus.set_trouble("nvidia-smi: " + why);
  return gpus;
}

pb::Gpus Ask(const std::string& nvidia_smi, Deadline deadline) {
  const BriefRun run =
      RunBriefly({nvidia_smi, "--query-gpu=driver_version,memory.total,memory.used,uuid,name",
                  "--format=csv,noheader,nounits"},
                 NodeEnvironment(), deadline);
  if (run.end == BriefRun::End::kNotStarted) return Trouble(ErrnoText(run.number));
  if (run.end == BriefRun::End::kTimedOut) return Trouble("the driver does not answer");
  if (run.end == BriefRun::End::kSignalled)
    return Trouble("it was ended by " + SignalName(run.number));
  if (run.number != 0) {
    std::string_view rest = run.output;
    const std::string said = SanitizeForTerminal(TakeLine(rest));
    return Trouble(said.empty() ? "exit code " + std::to_string(run.number) : said);
  }
  const BriefRun version = RunBriefly({nvidia_smi, "--version"}, NodeEnvironment(), deadline);
  return ParseNvidiaSmi(run.output, version.output);
}

}  // namespace

std::string FindNvidiaSmi() {
  const Result<std::string> found = FindExecutable("nvidia-smi", NodeEnvironment(), "/", "");
  return found.ok() ? *found : "";
}

pb::Gpus ReadGpus(const std::string& nvidia_smi, milliseconds patience) {
  if (nvidia_smi.empty()) return {};
  auto promise = std::make_shared<std::promise<pb::Gpus>>();
  std::future<pb::Gpus> answer = promise->get_future();
  std::thread([nvidia_smi, promise, deadline = Deadline::After(patience)] {
    promise->set_value(Ask(nvidia_smi, deadline));
  }).detach();
  // Waits a little longer than the thread, whose own answer has more detail, but not forever,
  // because the kernel may not let the program end.
  if (answer.wait_for(patience + milliseconds(200)) == std::future_status::ready)
    return answer.get();
  return Trouble("the driver does not answer");
}

pb::Gpus ParseNvidiaSmi(std::string_view gpus, std::string_view version) {
  pb::Gpus parsed;
  parsed.set_cuda(CudaVersion(version));
  while (!gpus.empty()) {
    std::string_view line = TakeLine(gpus);
    const std::string_view driver = TakeField(line);
    const std::string_view total = TakeField(line), used = TakeField(line);
    const std::string_view uuid = TakeField(line), name = TakeField(line, true);
    if (name.empty()) continue;
    parsed.set_driver(SanitizeForTerminal(driver));
    pb::Gpu& gpu = *parsed.add_installed();
    gpu.set_name(SanitizeForTerminal(name));
    gpu.set_uuid(SanitizeForTerminal(uuid));
    gpu.set_memory_bytes(BytesOf(total));
    gpu.set_memory_used_bytes(BytesOf(used));
  }
  return parsed;
}

}  // namespace dslaunch
