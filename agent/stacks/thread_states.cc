#include "agent/stacks/thread_states.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/os/proc_text.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

enum class Argument { kNone, kDescriptor, kMapping };

struct KnownCall {
  long number;
  const char* name;
  Argument argument = Argument::kNone;
};

// System calls in which programs often wait.
constexpr KnownCall kSystemCalls[] = {
    {SYS_read, "read", Argument::kDescriptor},
    {SYS_pread64, "pread64", Argument::kDescriptor},
    {SYS_readv, "readv", Argument::kDescriptor},
    {SYS_write, "write", Argument::kDescriptor},
    {SYS_pwrite64, "pwrite64", Argument::kDescriptor},
    {SYS_writev, "writev", Argument::kDescriptor},
    {SYS_openat, "openat"},
    {SYS_close, "close", Argument::kDescriptor},
    {SYS_fsync, "fsync", Argument::kDescriptor},
    {SYS_fdatasync, "fdatasync", Argument::kDescriptor},
    {SYS_flock, "flock", Argument::kDescriptor},
    {SYS_fcntl, "fcntl", Argument::kDescriptor},
    {SYS_ioctl, "ioctl", Argument::kDescriptor},
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
    {SYS_accept, "accept", Argument::kDescriptor},
    {SYS_accept4, "accept4", Argument::kDescriptor},
    {SYS_connect, "connect", Argument::kDescriptor},
    {SYS_recvfrom, "recvfrom", Argument::kDescriptor},
    {SYS_recvmsg, "recvmsg", Argument::kDescriptor},
    {SYS_sendto, "sendto", Argument::kDescriptor},
    {SYS_sendmsg, "sendmsg", Argument::kDescriptor},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_restart_syscall, "restart_syscall"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_mmap, "mmap", Argument::kMapping},
    {SYS_munmap, "munmap", Argument::kMapping},
    {SYS_mremap, "mremap", Argument::kMapping},
    {SYS_mprotect, "mprotect", Argument::kMapping},
    {SYS_madvise, "madvise", Argument::kMapping},
    {SYS_brk, "brk", Argument::kMapping},
    {SYS_execve, "execve", Argument::kMapping},
};

// Returns the thread IDs in /proc/PID/task.
std::vector<std::string> ThreadIds(const std::string& folder) {
  std::vector<std::string> ids;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (dir == nullptr) return ids;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] != '.') ids.emplace_back(entry->d_name);
  }
  return ids;
}

// Returns a description of a descriptor's file, without sending a request to a file server.
std::string ReadDescriptor(pid_t pid, uint64_t fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  std::array<char, 1024> link;
  const ssize_t length = readlink(path.c_str(), link.data(), link.size());
  if (length <= 0) return "";
  struct statx status = {};
  const bool is_known =
      syscall(SYS_statx, AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0;
  return DescribeDescriptor({link.data(), static_cast<size_t>(length)},
                            is_known && (status.stx_mode & S_IFMT) == S_IFIFO);
}

std::optional<ThreadState> ReadThread(pid_t pid, const std::string& folder,
                                      bool& waits_for_memory) {
  std::optional<ThreadState> thread = ParseThreadStat(ReadWhole(folder + "/stat").value_or(""));
  if (!thread || thread->state == 'R') return thread;
  const std::optional<std::string> text = ReadWhole(folder + "/syscall");
  const SystemCall call = ParseSystemCall(text.value_or(""));
  thread->call = call.name;
  if (call.on_fd) thread->target = ReadDescriptor(pid, *call.on_fd);
  // A thread in uninterruptible sleep waits for a page if it is outside of a system call, or in a
  // call that changes mappings. Reading its memory could wait as well, so such a thread is
  // reported.
  if (thread->state == 'D' && text && (call.name.empty() || call.maps_memory))
    waits_for_memory = true;
  thread->waits_in = ReadWhole(folder + "/wchan").value_or("");
  if (thread->waits_in.empty() || thread->waits_in == "0")
    thread->waits_in = ParseKernelStack(ReadWhole(folder + "/stack").value_or(""));
  return thread;
}

}  // namespace

std::optional<ThreadState> ParseThreadStat(std::string_view stat) {
  const size_t name_begin = stat.find('(');
  // The thread's name may contain any characters, so the last ')' ends it.
  const size_t name_end = stat.rfind(')');
  if (name_begin == std::string_view::npos || name_end == std::string_view::npos ||
      name_end < name_begin || name_end + 3 >= stat.size())
    return std::nullopt;
  ThreadState thread;
  thread.name = SanitizeForTerminal(stat.substr(name_begin + 1, name_end - name_begin - 1));
  thread.state = stat[name_end + 2];
  std::string_view rest = stat.substr(name_end + 3);
  constexpr int kFieldsToTimes = 10;  // number of fields from the parent to the fourth fault count
  for (int i = 0; i < kFieldsToTimes; ++i) TakeWord(rest);
  thread.ticks = TakeNumber(rest);
  thread.ticks += TakeNumber(rest);
  return thread;
}

SystemCall ParseSystemCall(std::string_view text) {
  std::string_view line = TakeLine(text);
  const std::string_view word = TakeWord(line);
  long number = -1;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (status != std::errc() || end != word.data() + word.size() || number < 0) return {};
  for (const KnownCall& known : kSystemCalls) {
    if (known.number != number) continue;
    SystemCall call = {.name = known.name, .maps_memory = known.argument == Argument::kMapping};
    std::string_view first = TakeWord(line);
    if (known.argument != Argument::kDescriptor || !first.starts_with("0x")) return call;
    first.remove_prefix(2);
    constexpr int kHex = 16;
    uint64_t fd = 0;
    if (std::from_chars(first.data(), first.data() + first.size(), fd, kHex).ec == std::errc())
      call.on_fd = fd;
    return call;
  }
  return {.name = "system call " + std::to_string(number)};
}

std::string ParseKernelStack(std::string_view text) {
  std::string_view line = TakeLine(text);  // line such as "[<0>] futex_wait_queue+0x60/0x90"
  const size_t begin = line.find("] ");
  if (begin == std::string_view::npos) return "";
  line.remove_prefix(begin + 2);
  return std::string(line.substr(0, line.find('+')));
}

std::string DescribeDescriptor(std::string_view link, bool is_fifo) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"pipe:[", "a pipe"},
      {"socket:[", "a socket"},
      {"anon_inode:[eventfd]", "an eventfd"},
      {"anon_inode:[eventpoll]", "an epoll"}};
  for (const auto& [begin, text] : kKinds) {
    if (link.starts_with(begin)) return text;
  }
  const std::string path = SanitizeForTerminal(link);
  return is_fifo ? "the FIFO " + path : path;
}

ThreadStates ReadThreadStates(pid_t pid, size_t max_threads) {
  ThreadStates states;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task/";
  std::vector<std::string> ids = ThreadIds(folder);
  const auto main = std::ranges::find(ids, std::to_string(pid));
  if (main != ids.end()) std::rotate(ids.begin(), main, main + 1);
  if (ids.size() > max_threads) {
    ids.resize(max_threads);
    states.cut = true;
  }
  for (const std::string& id : ids) {
    std::optional<ThreadState> thread = ReadThread(pid, folder + id, states.waits_for_memory);
    if (!thread) continue;
    thread->tid = static_cast<pid_t>(std::strtol(id.c_str(), nullptr, 10));
    states.threads.push_back(*std::move(thread));
  }
  return states;
}

}  // namespace dslaunch
