#include "base/os/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/os/pidfd.h"
#include "base/os/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

std::string ProcPath(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

std::vector<pid_t> AllPids() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc"), closedir);
  if (dir == nullptr) return pids;
  while (const dirent* entry = readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status == std::errc() && end == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

// Returns the first entry of an environment for which `matches` returns true; nullopt if there is
// no such entry.
template <class Matches>
std::optional<std::string_view> FindEntry(std::string_view environ, Matches matches) {
  while (!environ.empty()) {
    const std::string_view entry = environ.substr(0, environ.find('\0'));
    if (matches(entry)) return entry;
    environ.remove_prefix(std::min(entry.size() + 1, environ.size()));
  }
  return std::nullopt;
}

bool IsOurs(pid_t pid) {
  struct stat status = {};
  const std::string path = "/proc/" + std::to_string(pid);
  return stat(path.c_str(), &status) == 0 && status.st_uid == geteuid();
}

}  // namespace

std::optional<ProcessInfo> ParseProcessStat(std::string_view stat) {
  // The process's name may contain any characters, including blanks and parentheses, so the last
  // ')' ends it.
  const size_t name = stat.find('(') + 1;
  const size_t name_end = stat.rfind(')');
  if (name == 0 || name_end == std::string_view::npos || name_end < name ||
      name_end + 3 >= stat.size()) {
    return std::nullopt;
  }
  ProcessInfo info;
  info.command = stat.substr(name, name_end - name);
  info.state = stat[name_end + 2];
  std::string_view rest = stat.substr(name_end + 3);
  info.id.pid = static_cast<pid_t>(TakeNumber(stat));
  info.parent = static_cast<pid_t>(TakeNumber(rest));
  info.group = static_cast<pid_t>(TakeNumber(rest));
  info.session = static_cast<pid_t>(TakeNumber(rest));
  // Number of the fields between the start of `rest` and the number of threads: tty, tpgid, flags,
  // 4 fault counts, 4 times, priority and nice.
  constexpr int kFieldsToThreads = 13;
  for (int i = 0; i < kFieldsToThreads; ++i) TakeNumber(rest);
  const uint64_t threads = TakeNumber(rest);
  TakeNumber(rest);  // skips itrealvalue, which precedes the start time
  info.id.start_ticks = TakeNumber(rest);
  // A process whose first thread has exited looks like a zombie while other threads still run, so
  // the number of threads is checked too.
  info.ended = info.state == 'X' || (info.state == 'Z' && threads <= 1);
  return info;
}

std::optional<ProcessInfo> ReadProcess(pid_t pid) {
  const std::optional<std::string> stat = ReadWhole(ProcPath(pid, "stat"));
  return stat ? ParseProcessStat(*stat) : std::nullopt;
}

std::vector<ProcessInfo> AllProcesses() {
  std::vector<ProcessInfo> processes;
  for (const pid_t pid : AllPids()) {
    if (const auto info = ReadProcess(pid)) processes.push_back(*info);
  }
  return processes;
}

std::vector<ProcessInfo> Descendants(pid_t root, std::span<const pid_t> except) {
  std::unordered_map<pid_t, std::vector<ProcessInfo>> children;
  for (const ProcessInfo& info : AllProcesses()) children[info.parent].push_back(info);
  std::unordered_set<pid_t> seen(except.begin(), except.end());
  seen.insert(root);
  std::vector<ProcessInfo> found;
  std::vector<pid_t> parents = {root};
  for (size_t next = 0; next < parents.size(); ++next) {
    for (const ProcessInfo& child : children[parents[next]]) {
      if (!seen.insert(child.id.pid).second) continue;
      parents.push_back(child.id.pid);
      if (!child.ended) found.push_back(child);
    }
  }
  return found;
}

std::vector<pid_t> OwnChildren() {
  std::vector<pid_t> pids;
  const pid_t self = getpid();
  const std::string path = ProcPath(self, "task/") + std::to_string(self) + "/children";
  if (const std::optional<std::string> list = ReadWhole(path)) {
    std::string_view rest = *list;
    while (const uint64_t pid = TakeNumber(rest)) pids.push_back(static_cast<pid_t>(pid));
    return pids;
  }
  for (const ProcessInfo& info : AllProcesses()) {
    if (info.parent == self) pids.push_back(info.id.pid);
  }
  return pids;
}

std::vector<ProcessInfo> ProcessesWithVariable(std::string_view variable, std::string_view value) {
  const std::string wanted = std::string(variable) + "=" + std::string(value);
  std::vector<ProcessInfo> found;
  for (const pid_t pid : AllPids()) {
    if (!IsOurs(pid)) continue;
    // The pid may be recycled between the two reads. The start time is read first, so
    // SignalProcess() later detects this.
    const auto info = ReadProcess(pid);
    if (!info || info->ended) continue;
    const auto environ = ReadWhole(ProcPath(pid, "environ"));
    const auto is_wanted = [&](std::string_view entry) { return entry == wanted; };
    if (environ && FindEntry(*environ, is_wanted)) found.push_back(*info);
  }
  return found;
}

std::optional<std::string> VariableOf(pid_t pid, std::string_view variable) {
  const std::string begin = std::string(variable) + "=";
  const std::string environ = ReadWhole(ProcPath(pid, "environ")).value_or("");
  const auto entry =
      FindEntry(environ, [&](std::string_view one) { return one.starts_with(begin); });
  return entry ? std::optional(std::string(entry->substr(begin.size()))) : std::nullopt;
}

bool SignalProcess(const ProcessId& id, int signal) {
  const auto is_same = [&id] {
    const auto info = ReadProcess(id.pid);
    return info && info->id == id;
  };
  const UniqueFd pidfd(PidfdOpen(id.pid));
  if (pidfd.valid()) {
    // The descriptor refers to one process for good, so if the start time matches, the signal
    // cannot reach another process.
    if (!is_same()) return false;
    if (PidfdSendSignal(pidfd.get(), signal) == 0) return true;
  }
  if (errno == ESRCH) return false;
  // Linux before 5.3 and some seccomp profiles provide no pidfds, so kill() is used instead.
  return is_same() && kill(id.pid, signal) == 0;
}

}  // namespace dslaunch
