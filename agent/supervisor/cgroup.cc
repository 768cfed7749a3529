#include "agent/supervisor/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/os/own_cgroup.h"
#include "base/os/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

Error NoCgroup(std::string why) { return {ExitCode::kUnavailable, std::move(why)}; }

bool WriteFile(const std::string& path, std::string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() && write(fd.get(), text.data(), text.size()) == std::ssize(text);
}

// Returns the folders of the cgroup and its descendants, parents before children.
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

// Returns the processes in the cgroup and its descendants, except zombies.
std::vector<pid_t> Pids(const std::string& folder) {
  std::vector<pid_t> pids;
  for (const std::string& each : WithThoseBelow(folder)) {
    const std::optional<std::string> procs = ReadWhole(each + "/cgroup.procs");
    if (!procs) continue;
    std::string_view rest = *procs;
    while (!rest.empty()) {
      std::string_view line = TakeLine(rest);
      // 0 stands for a process of a PID namespace that is not visible here, so it is skipped.
      if (const auto pid = static_cast<pid_t>(TakeNumber(line)); pid > 0) pids.push_back(pid);
    }
  }
  return pids;
}

}  // namespace

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
  DSL_TRY_ASSIGN(const std::string own, OwnCgroup());
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
  // A pid may be recycled before its start time is read. Such a process is no longer in the cgroup,
  // so it is removed from the result.
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
