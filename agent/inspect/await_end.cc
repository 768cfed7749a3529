#include "agent/inspect/await_end.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/deadline.h"
#include "base/exit_code.h"
#include "base/os/build_id.h"
#include "base/os/proc_text.h"
#include "base/os/process_tree.h"
#include "base/os/socket_pair.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLimit(60'000);
constexpr int kLookEveryMs = 50;

std::string ArgumentsOf(pid_t pid) {
  return ReadWhole("/proc/" + std::to_string(pid) + "/cmdline").value_or("");
}

// Returns whether this process can find supervisors in /proc. A supervisor makes itself unreadable
// for other processes of its user, and /proc may be mounted so that such processes are hidden
// (hidepid).
bool SeesSupervisors() {
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_DUMPABLE, 0);
    pair->ours.Reset();
    char byte = 0;
    (void)!::write(pair->theirs.get(), &byte, 1);
    (void)!::read(pair->theirs.get(), &byte, 1);  // returns once the child's end is closed
    ::_exit(0);
  }
  pair->theirs.Reset();
  char byte = 0;
  const bool is_ready = child > 0 && ::read(pair->ours.get(), &byte, 1) == 1;
  const bool sees = is_ready && !ArgumentsOf(child).empty();
  pair->ours.Reset();
  if (child > 0) ::waitpid(child, nullptr, 0);
  return sees;
}

}  // namespace

bool RunsStart(std::string_view start_nonce) {
  const std::string wanted = std::string("\0--nonce\0", 9) + std::string(start_nonce) + '\0';
  return std::ranges::any_of(AllProcesses(), [&](const ProcessInfo& process) {
    return !process.ended && ArgumentsOf(process.id.pid).find(wanted) != std::string::npos;
  });
}

int RunAwaitEnd(const InspectOptions& options, const std::string& start_nonce) {
  if (!SeesSupervisors()) {
    std::fputs("dslaunch-agent: this node hides processes, so their end cannot be checked\n",
               stderr);
    return ToInt(ExitCode::kUnavailable);
  }
  const Deadline deadline = Deadline::After(kLimit);
  while (RunsStart(start_nonce)) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, kLookEveryMs) > 0) return 0;
    if (deadline.Expired()) return ToInt(ExitCode::kTimedOut);
  }
  const std::string hello = FormatHello(options.nonce, options.build_id);
  return ::write(STDOUT_FILENO, hello.data(), hello.size()) == std::ssize(hello)
             ? 0
             : ToInt(ExitCode::kIo);
}

}  // namespace dslaunch
