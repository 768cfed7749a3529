#include "agent/host/oom.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>

#include "base/os/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr std::string_view kKilled = "Killed process ";
constexpr size_t kMaxKillRecordsBytes = 256 << 10;

uint64_t ToNumber(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Removes the text up to and including `end`, and returns the removed text without `end`. Returns
// all of `text` if `end` is missing.
std::string_view Take(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

// Returns the message of the first out-of-memory kill since `since_us` whose pid satisfies
// `is_wanted`; nullopt if there is none.
template <class IsWanted>
std::optional<std::string> FindKill(std::string_view kernel_log, uint64_t since_us,
                                    IsWanted is_wanted) {
  while (!kernel_log.empty()) {
    // A record of the kernel's log is "priority,sequence,microseconds,flags;message", so the
    // message follows the first ';'.
    std::string_view message = TakeLine(kernel_log);
    std::string_view head = Take(message, ';');
    Take(head, ',');
    Take(head, ',');
    if (ToNumber(Take(head, ',')) < since_us) continue;
    if (!message.starts_with("Out of memory: ") &&
        !message.starts_with("Memory cgroup out of memory: "))
      continue;
    const size_t killed = message.find(kKilled);
    if (killed == std::string_view::npos) continue;
    if (is_wanted(ToNumber(message.substr(killed + kKilled.size())))) return std::string(message);
  }
  return std::nullopt;
}

// Returns whether `text` contains this pid as a number after the word "pid", with only elements of
// a list in between.
bool NamesPid(std::string_view text, uint64_t pid) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kOfLists = "0123456789 ,():=[]s";
  const std::string number = std::to_string(pid);
  for (size_t at = text.find(number); at != std::string_view::npos;
       at = text.find(number, at + 1)) {
    const size_t end = at + number.size();
    const bool is_whole = (at == 0 || kDigits.find(text[at - 1]) == std::string_view::npos) &&
                          (end == text.size() || kDigits.find(text[end]) == std::string_view::npos);
    const size_t word = at == 0 ? std::string_view::npos : text.find_last_not_of(kOfLists, at - 1);
    if (!is_whole || word == std::string_view::npos || word < 2) continue;
    const std::string_view before = text.substr(word - 2, 3);
    if (before == "pid" || before == "PID") return true;
  }
  return false;
}

// Texts in messages of Python and PyTorch about a child process that was killed.
constexpr std::string_view kKilledChild[] = {
    "killed by signal: Killed", "SIGKILL",      "exited unexpectedly",
    "terminated abruptly",      "exit code -9", "exitcode -9"};

}  // namespace

std::optional<std::string> FindOutOfMemoryKill(std::string_view kernel_log, pid_t pid,
                                               uint64_t since_us) {
  return FindKill(kernel_log, since_us,
                  [pid](uint64_t killed) { return killed == static_cast<uint64_t>(pid); });
}

std::optional<std::string> FindOutOfMemoryKillNamedIn(std::string_view text,
                                                      std::string_view kernel_log,
                                                      uint64_t since_us) {
  return FindKill(kernel_log, since_us, [text](uint64_t killed) { return NamesPid(text, killed); });
}

uint64_t ParseOutOfMemoryKills(std::string_view vmstat) {
  while (!vmstat.empty()) {
    std::string_view line = TakeLine(vmstat);
    if (TakeWord(line) == "oom_kill") return TakeNumber(line);
  }
  return 0;
}

std::optional<std::string> DecideOutOfMemory(const OutOfMemoryInfo& details) {
  if (details.signal != SIGKILL) return std::nullopt;
  if (details.kernel_log) return "the kernel's log: " + *details.kernel_log;
  if (details.cgroup_counted) return "the kernel counted a kill for memory in the job's cgroup";
  if (details.kills_now <= details.kills_before) return std::nullopt;
  return "probably: the kernel killed " + std::to_string(details.kills_now - details.kills_before) +
         " on this node for memory while it ran (oom_kill in /proc/vmstat; dmesg names it)";
}

std::optional<std::string> DecideChildOutOfMemory(const OutOfMemoryInfo& details,
                                                  std::string_view last_lines) {
  if (details.kernel_log) return "the kernel's log: " + *details.kernel_log;
  if (details.cgroup_counted)
    return "the kernel counted a kill for memory in the job's cgroup while it ran";
  const bool tells_of_kill = std::ranges::any_of(kKilledChild, [&](std::string_view text) {
    return last_lines.find(text) != std::string_view::npos;
  });
  if (!tells_of_kill || details.kills_now <= details.kills_before) return std::nullopt;
  return "the kernel killed " + std::to_string(details.kills_now - details.kills_before) +
         " on this node for memory while it ran (oom_kill in /proc/vmstat; dmesg names it)";
}

std::string ReadKillsInKernelLog() {
  const UniqueFd fd(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string kills;
  // Buffer for one record, the unit in which the kernel's log is read.
  std::array<char, 8192> record;
  while (fd && kills.size() < kMaxKillRecordsBytes) {
    const ssize_t size = read(fd.get(), record.data(), record.size());
    // EPIPE means that some records were overwritten. The next read continues after them, so the
    // error is ignored.
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (size <= 0) break;
    std::string_view text(record.data(), static_cast<size_t>(size));
    text = text.substr(0, text.find('\n'));  // drops further lines, which describe the device
    if (text.find(kKilled) != std::string_view::npos) kills.append(text).push_back('\n');
  }
  return kills;
}

uint64_t OutOfMemoryKills() {
  return ParseOutOfMemoryKills(ReadWhole("/proc/vmstat").value_or(""));
}

std::string CoreDumpPlace(std::string_view pattern, bool uses_pid, const std::string& cwd,
                          pid_t pid) {
  while (!pattern.empty() && pattern.back() == '\n') pattern.remove_suffix(1);
  if (pattern.starts_with("|")) {
    pattern.remove_prefix(1);
    const std::string program(Take(pattern, ' '));
    if (program.ends_with("systemd-coredump"))
      return "with systemd-coredump: coredumpctl info " + std::to_string(pid);
    return "with " + program + ", to which the kernel gives core dumps";
  }
  std::string path;
  bool has_pid = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    const char what = pattern[++i];
    has_pid = has_pid || what == 'p';
    if (what == '%')
      path += '%';
    else if (what == 'p' || what == 'P')
      path += std::to_string(pid);
    else
      path += '*';  // stands for the time, host, program or another value that is unknown here
  }
  if (!has_pid && uses_pid) path += "." + std::to_string(pid);
  return "in " + (path.starts_with("/") ? path : cwd + "/" + path);
}

}  // namespace dslaunch
