#include "agent/probe/gpu_health.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <thread>
#include <utility>

#include "agent/host/program.h"
#include "base/errno_text.h"
#include "base/os/brief_run.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/text/size_text.h"

namespace dslaunch {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;
constexpr milliseconds kAskAgain(500);
constexpr milliseconds kAnswer(5'000);

// Removes and returns the next field of a CSV line; the last field extends to the end.
std::string_view TakeField(std::string_view& line, bool last = false) {
  const size_t end = last ? std::string_view::npos : line.find(", ");
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 2);
  return field;
}

struct Holder {
  uint64_t bytes = 0;
  std::string text;
};

// Returns the process that uses most of each GPU, by UUID.
std::map<std::string, Holder, std::less<>> ReadHolders(std::string_view apps) {
  std::map<std::string, Holder, std::less<>> holders;
  while (!apps.empty()) {
    std::string_view line = TakeLine(apps);
    const std::string_view uuid = TakeField(line), pid = TakeField(line);
    std::string_view used = TakeField(line);
    const std::string_view path = TakeField(line, true);
    if (path.empty()) continue;
    const uint64_t bytes = TakeNumber(used) * kMebibyte;
    Holder& holder = holders[std::string(uuid)];
    if (!holder.text.empty() && holder.bytes >= bytes) continue;
    holder.bytes = bytes;
    holder.text = SanitizeForTerminal(path.substr(path.rfind('/') + 1)) + " (pid " +
                  SanitizeForTerminal(pid) + ", " + SizeText(bytes) + ")";
  }
  return holders;
}

// Returns a program's complete output, or sets `trouble`.
std::string Ask(const std::string& nvidia_smi, const char* query, std::string& trouble) {
  const BriefRun run = RunBriefly({nvidia_smi, query, "--format=csv,noheader,nounits"},
                                  NodeEnvironment(), Deadline::After(kAnswer));
  if (run.end == BriefRun::End::kExited && run.number == 0) return run.output;
  std::string_view rest = run.output;
  const std::string said = SanitizeForTerminal(TakeLine(rest));
  trouble = "nvidia-smi: ";
  if (run.end == BriefRun::End::kNotStarted)
    trouble += ErrnoText(run.number);
  else if (run.end == BriefRun::End::kTimedOut)
    trouble += "the driver does not answer";
  else if (run.end == BriefRun::End::kSignalled)
    trouble += "it was ended by " + SignalName(run.number);
  else
    trouble += said.empty() ? "exit code " + std::to_string(run.number) : said;
  return "";
}

GpuHealthReport AskOnce(const std::string& nvidia_smi) {
  GpuHealthReport report;
  const std::string gpus = Ask(nvidia_smi, kGpuHealthQuery, report.trouble);
  if (!report.trouble.empty()) return report;
  std::string ignored;  // without the list of processes, the memory in use is still known
  report.gpus = ParseGpuHealth(gpus, Ask(nvidia_smi, kGpuAppsQuery, ignored));
  return report;
}

}  // namespace

std::vector<pb::GpuHealth> ParseGpuHealth(std::string_view gpus, std::string_view apps) {
  const auto holders = ReadHolders(apps);
  std::vector<pb::GpuHealth> parsed;
  while (!gpus.empty()) {
    std::string_view line = TakeLine(gpus);
    std::string_view index = TakeField(line);
    const std::string_view uuid = TakeField(line);
    std::string_view total = TakeField(line), used = TakeField(line), errors = TakeField(line);
    const std::string_view pending = TakeField(line), thermal = TakeField(line),
                           brake = TakeField(line);
    std::string_view clock = TakeField(line, true);
    if (clock.empty() || index.find_first_not_of("0123456789") != std::string_view::npos) continue;
    pb::GpuHealth gpu;
    gpu.set_index(static_cast<uint32_t>(TakeNumber(index)));
    gpu.set_uuid(SanitizeForTerminal(uuid));
    gpu.set_memory_bytes(TakeNumber(total) * kMebibyte);
    gpu.set_memory_used_bytes(TakeNumber(used) * kMebibyte);
    gpu.set_uncorrected_errors(TakeNumber(errors));  // "[N/A]" is 0: the GPU has no ECC
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
