#include "agent/supervisor/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

Error NoCgroup(std::string why) { return {ExitCode::kUnavailable, std::move(why)}; }

// mountinfo writes blanks and backslashes in paths as \ooo.
std::string Unescape(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    uint8_t byte = 0;
    if (text.size() >= 4 && text[0] == '\\' &&
        std::from_chars(text.data() + 1, text.data() + 4, byte, 8).ptr == text.data() + 4) {
      plain.push_back(static_cast<char>(byte));
      text.remove_prefix(4);
    } else {
      plain.push_back(text[0]);
      text.remove_prefix(1);
    }
  }
  return plain;
}

// Where one mount shows which part of the hierarchy.
struct Mount {
  std::string root;
  std::string folder;
};

// A line of mountinfo is "id parent device root folder options... - type source options"; nullopt
// unless its type is cgroup2.
std::optional<Mount> ParseCgroup2Mount(std::string_view line) {
  std::array<std::string_view, 5> fields;
  std::string_view rest = line;
  for (std::string_view& field : fields) field = TakeWord(rest);
  while (!rest.empty() && TakeWord(rest) != "-") {
  }
  if (TakeWord(rest) != "cgroup2") return std::nullopt;
  return Mount{Unescape(fields[3]), Unescape(fields[4])};
}

bool WriteFile(const std::string& path, std::string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() && write(fd.get(), text.data(), text.size()) == std::ssize(text);
}

// The cgroup and those below it, each behind the one that holds it.
std::vector<std::string> WithThoseBelow(const std::string& folder) {
  std::vector<std::string> folders = {folder};
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) folders.push_back(it->path());
  }
  return folders;
}

// Those in it and in cgroups below it, zombies left out.
std::vector<pid_t> Pids(const std::string& folder) {
  std::vector<pid_t> pids;
  for (const std::string& each : WithThoseBelow(folder)) {
    const std::optional<std::string> procs = ReadWhole(each + "/cgroup.procs");
    if (!procs) continue;
    std::string_view rest = *procs;
    while (!rest.empty()) {
      std::string_view line = TakeLine(rest);
      // 0 stands for a process of a PID namespace that we do not see.
      if (const auto pid = static_cast<pid_t>(TakeNumber(line)); pid > 0) pids.push_back(pid);
    }
  }
  return pids;
}

}  // namespace

Result<std::string> FindOwnCgroup(std::string_view mountinfo, std::string_view cgroups) {
  std::optional<Mount> mount;
  while (!mount && !mountinfo.empty()) mount = ParseCgroup2Mount(TakeLine(mountinfo));
  if (!mount) return NoCgroup("cgroup v2 is not mounted here");
  // Version 2 has the line without a number and without a list of controllers.
  constexpr std::string_view kVersion2 = "0::";
  std::string_view line;
  while (!line.starts_with(kVersion2)) {
    if (cgroups.empty()) return NoCgroup("this process is in no cgroup v2");
    line = TakeLine(cgroups);
  }
  std::string_view path = line.substr(kVersion2.size());
  // Seen from a cgroup namespace, what lies outside begins with "..".
  if (!path.starts_with('/') || path.starts_with("/..") || mount->root.starts_with("/..")) {
    return NoCgroup("this process' cgroup " + std::string(path) + " lies outside its namespace");
  }
  if (mount->root != "/") {
    const std::string_view root = mount->root;
    if (!path.starts_with(root) || (path.size() > root.size() && path[root.size()] != '/')) {
      return NoCgroup("the mount " + mount->folder + " does not show this process' cgroup " +
                      std::string(path));
    }
    path.remove_prefix(root.size());
  }
  return path == "/" ? mount->folder : mount->folder + std::string(path);
}

uint64_t ParseOomKills(std::string_view memory_events) {
  while (!memory_events.empty()) {
    std::string_view line = TakeLine(memory_events);
    if (TakeWord(line) == "oom_kill") return TakeNumber(line);
  }
  return 0;
}

Result<std::string> CreateWorkerCgroup(std::string_view job_id) {
  if (job_id.empty() || job_id.find('/') != std::string_view::npos) {
    return NoCgroup("the job's id is not a valid file name");
  }
  const std::optional<std::string> mountinfo = ReadWhole("/proc/self/mountinfo");
  const std::optional<std::string> cgroups = ReadWhole("/proc/self/cgroup");
  if (!mountinfo || !cgroups) return NoCgroup("/proc has no information about cgroups");
  DSL_TRY_ASSIGN(const std::string own, FindOwnCgroup(*mountinfo, *cgroups));
  std::string folder = own + "/dslaunch-" + std::string(job_id) + "-" + std::to_string(getpid());
  if (mkdir(folder.c_str(), 0700) != 0) {
    return NoCgroup("cannot make " + folder + ": " + std::strerror(errno));
  }
  return folder;
}

std::vector<ProcessInfo> CgroupProcesses(const std::string& folder) {
  std::vector<ProcessInfo> found;
  for (const pid_t pid : Pids(folder)) {
    const std::optional<ProcessInfo> info = ReadProcess(pid);
    if (info && !info->ended) found.push_back(*info);
  }
  if (found.empty()) return found;
  // A pid that was recycled before its start time was read is not in here any more.
  const std::vector<pid_t> still = Pids(folder);
  std::erase_if(found, [&still](const ProcessInfo& info) {
    return std::ranges::find(still, info.id.pid) == still.end();
  });
  return found;
}

void KillCgroup(const std::string& folder) {
  if (WriteFile(folder + "/cgroup.kill", "1")) return;
  for (const ProcessInfo& info : CgroupProcesses(folder)) SignalProcess(info.id, SIGKILL);
}

bool RemoveCgroup(const std::string& folder) {
  const std::vector<std::string> folders = WithThoseBelow(folder);
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) rmdir(it->c_str());
  return access(folder.c_str(), F_OK) != 0;
}

std::optional<uint64_t> CountOomKills(const std::string& folder) {
  for (const char* file : {"/memory.events", "/../memory.events"}) {
    if (const std::optional<std::string> events = ReadWhole(folder + file)) {
      return ParseOomKills(*events);
    }
  }
  return std::nullopt;
}

}  // namespace dslaunch
