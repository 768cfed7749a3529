#include "agent/host/shell_environment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/child_watch.h"
#include "base/sanitize.h"
#include "base/signal_name.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

// The script comes as a variable: as an argument it would be the script's own, and as $0 it would
// make the script believe that it is executed.
constexpr char kScriptVariable[] = "DSLAUNCH_VENV_SCRIPT";
constexpr char kCommand[] =
    R"sh(source "$DSLAUNCH_VENV_SCRIPT" >&2 || exit; exec "$(command -pv env)" -0)sh";

// The shell's own doing.
constexpr std::string_view kShellsOwn[] = {kScriptVariable, "_", "SHLVL", "PWD", "OLDPWD"};

constexpr size_t kMaxStderrTail = 4096;

struct ShellRun {
  std::string out;
  std::string err;  // its end
  bool in_time = true;
  bool too_much = false;
  int status = 0;  // as waitpid() has it
};

// Takes what is there; false at the end of file.
bool ReadSome(int fd, std::string& text) {
  char buffer[1 << 14];
  const ssize_t got = read(fd, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

Result<std::pair<UniqueFd, UniqueFd>> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return Error{ExitCode::kIo, std::string("cannot make a pipe: ") + strerror(errno)};
  std::pair<UniqueFd, UniqueFd> ends{UniqueFd(fds[0]), UniqueFd(fds[1])};
  fcntl(fds[1], F_SETFL, 0);  // the shell's end blocks as usual
  return ends;
}

// Reads both streams until the process ends. What it leaves in the background may hold them open.
void Watch(pid_t pid, UniqueFd out, UniqueFd err, Deadline deadline, ShellRun& run) {
  const ChildWatch watch(pid);
  for (bool ended = false; !ended;) {
    pollfd fds[] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}, {watch.fd(), POLLIN, 0}};
    const int polled = poll(fds, 3, watch.PollMs(deadline));
    if (polled < 0 && errno == EINTR) continue;
    ended = watch.Ended();
    if (fds[0].revents != 0 && !ReadSome(out.get(), run.out)) out.Reset();
    if (fds[1].revents != 0 && !ReadSome(err.get(), run.err)) err.Reset();
    run.too_much = run.out.size() > kMaxVenvEnvironment;
    if (run.err.size() > 2 * kMaxStderrTail) run.err.erase(0, run.err.size() - kMaxStderrTail);
    run.in_time = ended || !deadline.Expired();
    if (run.too_much || !run.in_time) {
      kill(-pid, SIGKILL);
      break;
    }
  }
  while (waitpid(pid, &run.status, 0) < 0 && errno == EINTR) {
  }
  for (const auto& [fd, text] : {std::pair{out.get(), &run.out}, std::pair{err.get(), &run.err}}) {
    for (size_t before = text->size(); fd >= 0 && ReadSome(fd, *text) && text->size() > before;)
      before = text->size();
  }
}

std::string LastLine(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const size_t begin = text.rfind('\n');
  return SanitizeForTerminal(text.substr(begin == std::string_view::npos ? 0 : begin + 1));
}

std::string_view NameOf(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool IsShellsOwn(std::string_view name) {
  return std::ranges::find(kShellsOwn, name) != std::end(kShellsOwn);
}

std::string FindScript(const std::string& script, const std::string& cwd,
                       const Environment& environment) {
  if (script.starts_with('/')) return script;
  const std::string here = cwd + "/" + script;
  const char* home = FindVariable(environment, "HOME");
  if (home == nullptr || access(here.c_str(), F_OK) == 0) return here;
  const std::string at_home = std::string(home) + "/" + script;
  return access(at_home.c_str(), F_OK) == 0 ? at_home : here;
}

}  // namespace

Result<Environment> SourceScript(const std::string& script, const std::string& cwd,
                                 const Environment& environment, const std::string& node_name,
                                 milliseconds timeout) {
  const std::string path = FindScript(script, cwd, environment);
  const std::string what = node_name + ": --venv_script " + path;
  if (access(path.c_str(), R_OK) != 0) {
    return Error{ExitCode::kNotFound,
                 what + ": " + strerror(errno) + "; give a path that every node has"};
  }
  const Result<std::string> bash = FindExecutable("bash", environment, cwd, node_name);
  if (!bash.ok()) return Error{ExitCode::kNotFound, what + " needs bash; " + bash.error().message};
  DSL_TRY_ASSIGN(auto out, MakePipe());
  DSL_TRY_ASSIGN(auto err, MakePipe());

  SpawnSpec spec;
  spec.executable = *bash;
  spec.argv = {"bash", "-c", kCommand};
  spec.env = environment;
  spec.env.push_back(std::string(kScriptVariable) + "=" + path);
  spec.cwd = cwd;
  spec.stdout_fd = out.second.get();
  spec.stderr_fd = err.second.get();
  spec.own_group = true;
  spec.parent_death_signal = SIGKILL;
  const SpawnResult spawned = Spawn(spec);
  if (spawned.pid < 0) {
    return Error{ExitCode::kCannotExecute, what + ": cannot start bash (" + spawned.failure.step +
                                               "): " + strerror(spawned.failure.error_number)};
  }
  out.second.Reset();
  err.second.Reset();
  ShellRun run;
  Watch(spawned.pid, std::move(out.first), std::move(err.first), Deadline::After(timeout), run);

  const std::string last = LastLine(run.err);
  const std::string said = last.empty() ? "" : ": " + last;
  if (!run.in_time) {
    return Error{ExitCode::kTimedOut, what + " did not finish within " +
                                          std::to_string(timeout.count() / 1000) + " s" + said +
                                          "; it must not wait for anything or ask for input"};
  }
  if (run.too_much)
    return Error{ExitCode::kBadInput, what + " made an environment larger than 1 MiB" + said};
  if (WIFSIGNALED(run.status)) {
    return Error{ExitCode::kBadInput,
                 what + " was ended by " + SignalName(WTERMSIG(run.status)) + said};
  }
  if (WEXITSTATUS(run.status) != 0) {
    return Error{ExitCode::kBadInput, what + " ended with " +
                                          std::to_string(WEXITSTATUS(run.status)) + said +
                                          "; if that is not a failure, make its last line: true"};
  }

  Environment made;
  for (const std::string& entry : environment) {
    if (IsShellsOwn(NameOf(entry))) made.push_back(entry);
  }
  bool complete = false;
  for (std::string_view rest = run.out; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    complete = complete || NameOf(entry) == kScriptVariable;
    if (entry.find('=') != std::string_view::npos && !IsShellsOwn(NameOf(entry)))
      made.emplace_back(entry);
  }
  if (!complete) {
    return Error{ExitCode::kBadInput,
                 what + " left the shell before its environment could be read" + said +
                     "; it is sourced, so it must not call exit or exec"};
  }
  return made;
}

}  // namespace dslaunch
