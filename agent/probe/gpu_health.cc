#include "agent/probe/gpu_health.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <thread>
#include <utility>

#include "agent/host/nvidia_smi.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAskAgain(500);
constexpr milliseconds kAnswer(5'000);

struct Holder {
  uint64_t bytes = 0;
  std::string text;
};

// Returns the process that uses the most memory of each GPU, by the GPU's UUID.
std::map<std::string, Holder, std::less<>> ReadHolders(std::string_view apps) {
  std::map<std::string, Holder, std::less<>> holders;
  while (!apps.empty()) {
    std::string_view line = TakeLine(apps);
    const std::string_view uuid = TakeCsvField(line), pid = TakeCsvField(line);
    const std::string_view used = TakeCsvField(line), path = TakeCsvField(line, true);
    if (path.empty()) continue;
    const uint64_t bytes = BytesOfMebibytes(used);
    Holder& holder = holders[std::string(uuid)];
    if (!holder.text.empty() && holder.bytes >= bytes) continue;
    holder.bytes = bytes;
    holder.text = SanitizeForTerminal(path.substr(path.rfind('/') + 1)) + " (pid " +
                  SanitizeForTerminal(pid) + ", " + SizeText(bytes) + ")";
  }
  return holders;
}

Result<std::string> Ask(const std::string& nvidia_smi, const char* query) {
  return AskNvidiaSmi(nvidia_smi, {query, "--format=csv,noheader,nounits"}, kAnswer);
}

GpuHealthReport AskOnce(const std::string& nvidia_smi) {
  GpuHealthReport report;
  const Result<std::string> gpus = Ask(nvidia_smi, kGpuHealthQuery);
  if (!gpus.ok()) {
    report.trouble = gpus.error().message;
    return report;
  }
  // The memory in use is known even without the list of processes, so an error is ignored.
  const Result<std::string> apps = Ask(nvidia_smi, kGpuAppsQuery);
  report.gpus = ParseGpuHealth(*gpus, apps.ok() ? *apps : "");
  return report;
}

}  // namespace

std::vector<pb::GpuHealth> ParseGpuHealth(std::string_view gpus, std::string_view apps) {
  const auto holders = ReadHolders(apps);
  std::vector<pb::GpuHealth> parsed;
  while (!gpus.empty()) {
    std::string_view line = TakeLine(gpus);
    std::string_view index = TakeCsvField(line);
    const std::string_view uuid = TakeCsvField(line);
    const std::string_view total = TakeCsvField(line), used = TakeCsvField(line);
    std::string_view errors = TakeCsvField(line);
    const std::string_view pending = TakeCsvField(line), thermal = TakeCsvField(line),
                           brake = TakeCsvField(line);
    std::string_view clock = TakeCsvField(line, true);
    if (clock.empty() || index.find_first_not_of("0123456789") != std::string_view::npos) continue;
    pb::GpuHealth gpu;
    gpu.set_index(static_cast<uint32_t>(TakeNumber(index)));
    gpu.set_uuid(SanitizeForTerminal(uuid));
    gpu.set_memory_bytes(BytesOfMebibytes(total));
    gpu.set_memory_used_bytes(BytesOfMebibytes(used));
    gpu.set_uncorrected_errors(TakeNumber(errors));  // "[N/A]" counts as 0, for a GPU without ECC
    gpu.set_pages_pending(pending == "Yes");
    if (thermal == "Active") gpu.set_slowdown("thermal");
    if (brake == "Active")
      gpu.set_slowdown(gpu.slowdown().empty() ? "power brake" : "thermal and power brake");
    gpu.set_max_clock_mhz(static_cast<uint32_t>(TakeNumber(clock)));
    if (const auto holder = holders.find(uuid); holder != holders.end())
      gpu.set_holder(holder->second.text);
    parsed.push_back(std::move(gpu));
  }
  return parsed;
}

bool AreFree(const std::vector<pb::GpuHealth>& gpus, uint32_t wanted) {
  const size_t count = std::min<size_t>(wanted, gpus.size());
  return std::all_of(
      gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(count),
      [](const pb::GpuHealth& gpu) { return gpu.memory_used_bytes() < kFreeGpuUsesBytes; });
}

GpuHealthReport ExamineGpus(const std::string& nvidia_smi, uint32_t wanted, milliseconds wait) {
  if (nvidia_smi.empty()) return {};
  const Deadline deadline = Deadline::After(wait);
  while (true) {
    GpuHealthReport report = AskOnce(nvidia_smi);
    if (!report.trouble.empty() || AreFree(report.gpus, wanted) || deadline.Expired())
      return report;
    std::this_thread::sleep_for(std::min(kAskAgain, deadline.Left()));
  }
}

}  // namespace dslaunch
