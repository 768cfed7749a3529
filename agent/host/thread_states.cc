#include "agent/host/thread_states.h"

#include <dirent.h>
#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/os/proc_text.h"
#include "base/os/process_tree.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxThreads = 4096;  // limit for the threads of all processes

// Blocking system calls that programs commonly wait in.
constexpr std::pair<long, const char*> kSystemCalls[] = {
    {SYS_read, "read"},
    {SYS_pread64, "pread64"},
    {SYS_readv, "readv"},
    {SYS_write, "write"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_writev, "writev"},
    {SYS_openat, "openat"},
    {SYS_close, "close"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_ioctl, "ioctl"},
    {SYS_futex, "futex"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
#endif
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_restart_syscall, "restart_syscall"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
};

std::string StateWord(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "asleep";
    case 'D':
      return "in an uninterruptible wait (D)";
    case 'T':
      return "stopped (T)";
    case 't':
      return "stopped by a debugger (t)";
    case 'Z':
      return "ended (Z)";
    default:
      return std::string("in state ") + state;
  }
}

// Sorts the lines: blocked and stopped threads first, then running ones.
int Urgency(char state) {
  constexpr std::string_view kOrder = "DTtR";
  const size_t at = kOrder.find(state);
  return static_cast<int>(at == std::string_view::npos ? kOrder.size() : at);
}

std::string Seconds(uint64_t ticks, long ticks_per_s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s of CPU time",
                static_cast<double>(ticks) / static_cast<double>(std::max(1L, ticks_per_s)));
  return text;
}

// Returns the thread ids in /proc/PID/task.
std::vector<std::string> ThreadIds(const std::string& folder) {
  std::vector<std::string> ids;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (dir == nullptr) return ids;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] != '.') ids.emplace_back(entry->d_name);
  }
  return ids;
}

std::optional<ThreadState> ReadThread(const std::string& folder) {
  std::optional<ThreadState> thread = ParseThreadStat(ReadWhole(folder + "/stat").value_or(""));
  if (!thread || thread->state == 'R') return thread;
  thread->call = ParseSystemCall(ReadWhole(folder + "/syscall").value_or(""));
  thread->waits_in = ReadWhole(folder + "/wchan").value_or("");
  if (thread->waits_in.empty() || thread->waits_in == "0")
    thread->waits_in = ParseKernelStack(ReadWhole(folder + "/stack").value_or(""));
  return thread;
}

}  // namespace

std::optional<ThreadState> ParseThreadStat(std::string_view stat) {
  const size_t name_begin = stat.find('(');
  const size_t name_end = stat.rfind(')');  // the name may contain any characters
  if (name_begin == std::string_view::npos || name_end == std::string_view::npos ||
      name_end < name_begin || name_end + 3 >= stat.size())
    return std::nullopt;
  ThreadState thread;
  thread.name = SanitizeForTerminal(stat.substr(name_begin + 1, name_end - name_begin - 1));
  thread.state = stat[name_end + 2];
  std::string_view rest = stat.substr(name_end + 3);
  constexpr int kFieldsToTimes = 10;  // from parent to the fourth fault count
  for (int i = 0; i < kFieldsToTimes; ++i) TakeWord(rest);
  thread.ticks = TakeNumber(rest);
  thread.ticks += TakeNumber(rest);
  return thread;
}

std::string ParseSystemCall(std::string_view text) {
  std::string_view line = TakeLine(text);
  const std::string_view word = TakeWord(line);
  long number = -1;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (status != std::errc() || end != word.data() + word.size() || number < 0) return "";
  for (const auto& [known, name] : kSystemCalls) {
    if (known == number) return name;
  }
  return "system call " + std::to_string(number);
}

std::string ParseKernelStack(std::string_view text) {
  std::string_view line = TakeLine(text);  // "[<0>] futex_wait_queue+0x60/0x90"
  const size_t begin = line.find("] ");
  if (begin == std::string_view::npos) return "";
  line.remove_prefix(begin + 2);
  return std::string(line.substr(0, line.find('+')));
}

std::vector<ProcessThreads> ReadThreads(pid_t root) {
  std::vector<ProcessInfo> tree;
  if (auto info = ReadProcess(root)) tree.push_back(*std::move(info));
  for (ProcessInfo& info : Descendants(root, {})) tree.push_back(std::move(info));
  std::vector<ProcessThreads> processes;
  size_t threads = 0;
  for (const ProcessInfo& info : tree) {
    ProcessThreads process;
    process.pid = info.id.pid;
    process.command = SanitizeForTerminal(info.command);
    const std::string folder = "/proc/" + std::to_string(info.id.pid) + "/task/";
    for (const std::string& id : ThreadIds(folder)) {
      if (++threads > kMaxThreads) return processes;
      if (auto thread = ReadThread(folder + id)) process.threads.push_back(*std::move(thread));
    }
    if (!process.threads.empty()) processes.push_back(std::move(process));
  }
  return processes;
}

std::string DescribeThreads(const std::vector<ProcessThreads>& processes, size_t max_lines,
                            long ticks_per_s) {
  std::string text;
  for (const ProcessThreads& process : processes) {
    const char state = process.threads.empty() ? '?' : process.threads.front().state;
    if (state != 'T' && state != 't' && state != 'D') continue;
    text += (text.empty() ? "" : "; ") + process.command + " (pid " + std::to_string(process.pid) +
            ") is " + StateWord(state);
    if (state == 'T') text += ": kill -CONT " + std::to_string(process.pid) + " continues it";
  }

  struct Group {
    const ProcessThreads* process = nullptr;
    const ThreadState* thread = nullptr;
    size_t count = 0;
    uint64_t ticks = 0;
  };
  std::map<std::tuple<pid_t, std::string, char, std::string, std::string>, Group> groups;
  for (const ProcessThreads& process : processes) {
    for (const ThreadState& thread : process.threads) {
      Group& group = groups[{process.pid, thread.name, thread.state, thread.call, thread.waits_in}];
      group.process = &process;
      group.thread = &thread;
      ++group.count;
      group.ticks += thread.ticks;
    }
  }
  std::vector<Group> sorted;
  for (const auto& [key, group] : groups) sorted.push_back(group);
  std::ranges::stable_sort(sorted, [](const Group& a, const Group& b) {
    return std::pair(Urgency(a.thread->state), b.ticks) <
           std::pair(Urgency(b.thread->state), a.ticks);
  });
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i == max_lines) return text + "\n  and " + std::to_string(sorted.size() - i) + " more";
    const Group& group = sorted[i];
    const ThreadState& thread = *group.thread;
    text += "\n  pid " + std::to_string(group.process->pid) + ", " +
            (group.count == 1 ? "thread " : std::to_string(group.count) + " threads ") +
            thread.name + ": " + StateWord(thread.state);
    if (!thread.call.empty()) text += " in " + thread.call;
    if (!thread.waits_in.empty()) text += " (" + thread.waits_in + ")";
    text += ", " + Seconds(group.ticks, ticks_per_s);
  }
  return text;
}

}  // namespace dslaunch
