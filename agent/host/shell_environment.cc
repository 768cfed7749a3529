#include "agent/host/shell_environment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/child_watch.h"
#include "base/os/proc_text.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

// Variable with the script's path. An argument would become the script's own argument, and $0 would
// make the script behave as if it were executed, so a variable is used.
constexpr char kScriptVariable[] = "DSLAUNCH_VENV_SCRIPT";
// Prints umask and limits before and after sourcing the script, then the current folder and the
// environment. A zero byte ends each field.
constexpr char kCommand[] =
    R"sh(builtin printf '%s\0%s\0' "$(builtin umask)" "$(command -p cat /proc/self/limits)"; )sh"
    R"sh(source "$DSLAUNCH_VENV_SCRIPT" >&2 || exit; )sh"
    R"sh(builtin printf '%s\0%s\0%s\0' "$(builtin umask)" "$(command -p cat /proc/self/limits)" "$PWD"; )sh"
    R"sh(exec "$(command -pv env)" -0)sh";

// Variables that the shell sets itself, which are not part of the result.
constexpr std::string_view kShellsOwn[] = {kScriptVariable, "_", "SHLVL", "PWD", "OLDPWD"};

constexpr size_t kMaxStderrTail = 4096;

struct ShellRun {
  std::string out;
  std::string err;  // last bytes that the shell wrote to stderr
  bool in_time = true;
  bool too_much = false;
  int status = 0;  // status of the shell, from waitpid()
};

// Appends the available bytes of `fd` to `text`. Returns false at the end of file or on an error.
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
  fcntl(fds[1], F_SETFL, 0);  // makes the shell's end of the pipe blocking, as usual
  return ends;
}

// Reads both streams until the process exits. Background processes of the script may keep the
// streams open, so their ends are not awaited.
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

struct NamedLimit {
  std::string_view name;
  int resource;
};
constexpr NamedLimit kLimits[] = {{"Max cpu time", RLIMIT_CPU},
                                  {"Max file size", RLIMIT_FSIZE},
                                  {"Max data size", RLIMIT_DATA},
                                  {"Max stack size", RLIMIT_STACK},
                                  {"Max core file size", RLIMIT_CORE},
                                  {"Max resident set", RLIMIT_RSS},
                                  {"Max processes", RLIMIT_NPROC},
                                  {"Max open files", RLIMIT_NOFILE},
                                  {"Max locked memory", RLIMIT_MEMLOCK},
                                  {"Max address space", RLIMIT_AS},
                                  {"Max file locks", RLIMIT_LOCKS},
                                  {"Max pending signals", RLIMIT_SIGPENDING},
                                  {"Max msgqueue size", RLIMIT_MSGQUEUE},
                                  {"Max nice priority", RLIMIT_NICE},
                                  {"Max realtime priority", RLIMIT_RTPRIO},
                                  {"Max realtime timeout", RLIMIT_RTTIME}};

template <class T>
std::optional<T> ReadNumber(std::string_view text, int base) {
  T number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<uint64_t> ReadLimit(std::string_view word) {
  return word == "unlimited" ? RLIM_INFINITY : ReadNumber<uint64_t>(word, 10);
}

// Returns the limits in a text of /proc/PID/limits, one limit per line: name, soft limit, hard
// limit.
std::vector<pb::ResourceLimit> ReadLimits(std::string_view text) {
  std::vector<pb::ResourceLimit> limits;
  while (!text.empty()) {
    std::string_view line = TakeLine(text);
    const auto known = std::ranges::find_if(
        kLimits, [&](const NamedLimit& limit) { return line.starts_with(limit.name); });
    if (known == std::end(kLimits)) continue;
    const auto resource = static_cast<uint32_t>(known->resource);
    const bool is_repeated =
        std::ranges::find(limits, resource, &pb::ResourceLimit::resource) != limits.end();
    line.remove_prefix(known->name.size());
    const std::optional<uint64_t> soft = ReadLimit(TakeWord(line));
    const std::optional<uint64_t> hard = ReadLimit(TakeWord(line));
    if (!soft || !hard || is_repeated) continue;
    pb::ResourceLimit& limit = limits.emplace_back();
    limit.set_resource(resource);
    limit.set_soft(*soft);
    limit.set_hard(*hard);
  }
  return limits;
}

// Returns the state in the output of kCommand; nullopt if the output is incomplete. Variables that
// the shell itself sets keep their values from `before`.
std::optional<SourcedShell> ReadShell(std::string_view printed, const Environment& before) {
  const auto take_field = [&] {
    const std::string_view field = printed.substr(0, printed.find('\0'));
    printed.remove_prefix(std::min(field.size() + 1, printed.size()));
    return field;
  };
  const std::string_view old_umask = take_field();
  const std::string_view old_limits = take_field();
  const std::string_view umask = take_field();
  SourcedShell shell;
  if (const auto mask = ReadNumber<uint32_t>(umask, 8); mask && umask != old_umask)
    shell.limits.set_umask(*mask);
  *shell.limits.mutable_limits() = ChangedLimits(old_limits, take_field());
  shell.cwd = std::string(take_field());
  for (const std::string& entry : before) {
    if (IsShellsOwn(NameOf(entry))) shell.environment.push_back(entry);
  }
  bool is_complete = false;
  while (!printed.empty()) {
    const std::string_view entry = take_field();
    is_complete = is_complete || NameOf(entry) == kScriptVariable;
    if (entry.find('=') != std::string_view::npos && !IsShellsOwn(NameOf(entry)))
      shell.environment.emplace_back(entry);
  }
  if (!is_complete) return std::nullopt;
  return shell;
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

// Returns ": " and the last line of the script's stderr; empty if the script wrote no line.
std::string LastWords(const ShellRun& run) {
  const std::string last = LastLine(run.err);
  return last.empty() ? "" : ": " + last;
}

// Returns the error of a script that timed out or failed. `name` names the node and the script in
// the message.
Result<void> CheckRun(const ShellRun& run, const std::string& name, milliseconds timeout) {
  const std::string last_words = LastWords(run);
  if (!run.in_time) {
    return Error{ExitCode::kTimedOut,
                 name + " did not finish within " + std::to_string(timeout.count() / 1000) + " s" +
                     last_words + "; it must not wait for anything or ask for input"};
  }
  if (run.too_much)
    return Error{ExitCode::kBadInput, name + " made an environment larger than 1 MiB" + last_words};
  if (WIFSIGNALED(run.status)) {
    return Error{ExitCode::kBadInput,
                 name + " was ended by " + SignalName(WTERMSIG(run.status)) + last_words};
  }
  if (WEXITSTATUS(run.status) != 0) {
    return Error{ExitCode::kBadInput, name + " ended with " +
                                          std::to_string(WEXITSTATUS(run.status)) + last_words +
                                          "; if that is not a failure, make its last line: true"};
  }
  return {};
}

}  // namespace

Result<SourcedShell> SourceScript(const std::string& script, const std::string& cwd,
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
  // Without PWD, bash would use the folder's path with all links resolved, so PWD is set.
  spec.env = WithVariable(environment, "PWD", cwd);
  spec.env.push_back(std::string(kScriptVariable) + "=" + path);
  spec.cwd = cwd;
  spec.stdout_fd = out.second.get();
  spec.stderr_fd = err.second.get();
  spec.own_group = true;
  spec.as_before = true;
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

  DSL_TRY(CheckRun(run, what, timeout));
  const std::optional<SourcedShell> made = ReadShell(run.out, environment);
  if (!made) {
    return Error{ExitCode::kBadInput,
                 what + " left the shell before its environment could be read" + LastWords(run) +
                     "; it is sourced, so it must not call exit or exec"};
  }
  return *made;
}

google::protobuf::RepeatedPtrField<pb::ResourceLimit> ChangedLimits(std::string_view before,
                                                                    std::string_view after) {
  google::protobuf::RepeatedPtrField<pb::ResourceLimit> changed;
  const std::vector<pb::ResourceLimit> old_limits = ReadLimits(before);
  for (const pb::ResourceLimit& limit : ReadLimits(after)) {
    const auto old = std::ranges::find(old_limits, limit.resource(), &pb::ResourceLimit::resource);
    const bool is_equal =
        old == old_limits.end() || (old->soft() == limit.soft() && old->hard() == limit.hard());
    if (!is_equal) *changed.Add() = limit;
  }
  return changed;
}

}  // namespace dslaunch
