#include "agent/probe/device_bench.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "agent/host/program.h"
#include "base/count.h"
#include "base/errno_text.h"
#include "base/os/brief_run.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

constexpr size_t kMostDevices = 64;

// Removes and returns the first word of a line; empty at the end of the line.
std::string_view TakeNext(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

bool ParseWhole(std::string_view word, uint64_t& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

}  // namespace

std::vector<pb::DeviceSpeed> ParseDeviceSpeeds(std::string_view output) {
  std::vector<pb::DeviceSpeed> speeds;
  for (std::string_view line : SplitLines(output)) {
    if (TakeNext(line) != "device" || speeds.size() == kMostDevices) continue;
    std::array<uint64_t, 5> numbers{};
    bool ok = true;
    for (uint64_t& number : numbers) ok = ParseWhole(TakeNext(line), number) && ok;
    if (!ok || numbers[0] >= kMostDevices) continue;
    pb::DeviceSpeed& speed = speeds.emplace_back();
    speed.set_name("GPU " + std::to_string(numbers[0]));
    speed.set_gemm_flops(numbers[1]);
    speed.set_to_device_bytes_per_s(numbers[2]);
    speed.set_from_device_bytes_per_s(numbers[3]);
    speed.set_memory_bytes_per_s(numbers[4]);
  }
  return speeds;
}

Result<std::vector<pb::DeviceSpeed>> MeasureDevices(const std::string& trainer,
                                                    milliseconds patience) {
  const BriefRun run =
      RunBriefly({trainer, "bench", "devices"}, NodeEnvironment(), Deadline::After(patience));
  if (run.end == BriefRun::End::kExited && run.number == 0) return ParseDeviceSpeeds(run.output);
  std::string why;
  if (run.end == BriefRun::End::kNotStarted)
    why = "does not start: " + ErrnoText(run.number);
  else if (run.end == BriefRun::End::kTimedOut)
    why = "did not measure the devices within " + Seconds(patience.count());
  else if (run.end == BriefRun::End::kSignalled)
    why = "was ended by " + SignalName(run.number);
  else
    why = "ended with exit code " + std::to_string(run.number);
  const std::vector<std::string_view> lines = SplitLines(run.output);
  if (!lines.empty()) why += ": " + SanitizeForTerminal(lines.back());
  return Error{ExitCode::kUnavailable, trainer + " " + why};
}

}  // namespace dslaunch
