#include "cli/transport/ssh_bootstrap.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/substitute.h"
#include "base/unique_fd.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

constexpr milliseconds kExitStatusWait{2000};
constexpr size_t kChunkBytes = 256 * 1024;

// Only built-in tests before the exec: it is on the way of every start. The full checks ran when it
// was installed.
constexpr std::string_view kStart =
    R"sh(d="$HOME/.cache/dslaunch"; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh([ -O "$d" ] && [ ! -L "$d" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ] || exit 97; )sh"
    R"sh(exec "$a"%ARGUMENTS%)sh";

// The agent's bytes come on stdin. Every folder above it must belong to the user or root, and no
// other user may be able to rename things in it; the file appears under its name only when it is
// complete, on disk and known to run here.
constexpr std::string_view kInstall =
    R"sh(umask 077; t=; )sh"
    R"sh(fail() { echo "$1" >&2; [ -z "$t" ] || rm -f "$t"; exit 98; }; )sh"
    R"sh([ -n "$HOME" ] || fail "HOME is not set there"; )sh"
    R"sh(m=$(uname -m); [ "$m" = %MACHINE% ] || fail "the node is a $m machine, the agent of this dslaunch is for %MACHINE%; leave the node out (--exclude)"; )sh"
    R"sh(d="$HOME/.cache/dslaunch"; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh(mkdir -p "$d" || fail "cannot create $d: is the home folder writable and not full?"; )sh"
    R"sh([ -O "$d" ] && [ ! -L "$d" ] || fail "$d must be a folder of this account and no link; remove it"; )sh"
    R"sh(chmod 700 "$d" || fail "cannot set the mode of $d"; )sh"
    R"sh(p=$(cd "$d" && pwd -P) || fail "cannot enter $d"; u=$(id -u); )sh"
    R"sh(while :; do )sh"
    R"sh([ -n "$(find "$p" -prune "(" -user 0 -o -user "$u" ")" "(" ! -perm -020 ! -perm -002 -o -perm -1000 ")")" ] )sh"
    R"sh(|| fail "others may change $p, so no program is started from below it; fix: chmod go-w $p"; )sh"
    R"sh([ "$p" != / ] || break; p="${p%/*}"; p="${p:-/}"; done; )sh"
    R"sh(t=$(mktemp "$d/.agent-XXXXXXXXXX") || { t=; fail "cannot create a file in $d"; }; )sh"
    R"sh(cat > "$t" || fail "cannot write to $d: is the disk full?"; )sh"
    R"sh(n=$(wc -c < "$t"); [ "$n" -eq %SIZE% ] || fail "only $n of %SIZE% bytes arrived in $d"; )sh"
    R"sh(s=$(sha256sum < "$t"); [ "${s%% *}" = %SHA256% ] || fail "the copy in $d differs from what was sent"; )sh"
    R"sh(chmod 700 "$t" || fail "cannot make $t executable"; )sh"
    R"sh("$t" --version > /dev/null || fail "the agent cannot run there: see the line before"; )sh"
    R"sh(sync "$t" 2> /dev/null || sync; )sh"
    R"sh(ln "$t" "$a" 2> /dev/null || [ -e "$a" ] || mv -n "$t" "$a"; rm -f "$t"; t=; )sh"
    R"sh([ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ] || fail "$a is not the agent; remove it")sh";

// For all nodes of an engine at once. What lacks the agent fetches it from dslaunch's own port: no
// engine connects stdin everywhere. One line on stdout says what came of it.
constexpr std::string_view kEngineStart =
    R"sh(d="$HOME/.cache/dslaunch"; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh(ready() { [ -O "$d" ] && [ ! -L "$d" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ]; }; )sh"
    R"sh(ready || w=$({ for e in %SOURCES%; do )sh"
    R"sh(bash -c "exec 3<>/dev/tcp/$e && echo %TICKET% >&3 && cat <&3" 2> /dev/null && break; done; } )sh"
    R"sh(| ( %INSTALL% ) 2>&1) || { set -f; echo DSLAUNCH-FAILED %NONCE% %PLACE% $w; exit 98; }; )sh"
    R"sh(exec "$a" dial --nonce %NONCE% %PLACE% %PIN% %ENDPOINTS%%ARGUMENTS%)sh";

// Whatever came from a file or a variable, nothing but this and `also` reaches the node's shell.
std::string Plain(std::string_view text, std::string_view also = "") {
  std::string plain;
  for (const char c : text) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_' ||
        also.find(c) != std::string_view::npos) {
      plain += c;
    }
  }
  return plain;
}

// Waits for the end of a command whose output has ended or does not matter.
std::optional<int> AwaitExit(SshSession& session, SshStream& stream, Deadline deadline) {
  while (session.Process() && !stream.Closed() && !stream.exit_status()) {
    stream.inbound().clear();
    if (!session.WaitIo(deadline)) break;
  }
  return stream.exit_status();
}

// One try to start the agent. Null: this node lacks it.
Result<std::unique_ptr<SshStream>> TryStart(SshSession& session, const AgentBinary& agent,
                                            const AgentRole& role, TailBuffer& stderr_tail,
                                            Deadline deadline) {
  const std::string nonce = MakeNonce();
  DSL_TRY_ASSIGN(auto stream, session.Exec(ForLoginShell(StartScript(agent.build_id, role, nonce)),
                                           stderr_tail, deadline));
  HelloScanner scanner(nonce);
  while (true) {
    const bool alive = session.Process();
    stream->Refill();
    const HelloScanner::State state = scanner.Feed(std::exchange(stream->inbound(), ""));
    if (state == HelloScanner::State::kFound) {
      if (scanner.build_id() != agent.build_id) {
        return session.Fail(ExitCode::kUnavailable,
                            "the agent there is of build " + scanner.build_id() + ", not " +
                                agent.build_id +
                                "; remove ~/.cache/dslaunch on the node and try again");
      }
      stream->inbound() = scanner.leftover();
      return stream;
    }
    if (state == HelloScanner::State::kFailed) {
      return session.Fail(ExitCode::kUnavailable,
                          "the agent's hello line was not found: " + scanner.reason() +
                              ItSaid(stderr_tail.Get(), scanner.Skipped()) +
                              "; keep the shell's start-up files quiet for non-interactive logins");
    }
    if (!alive) {
      return session.Fail(ExitCode::kUnavailable,
                          "the connection was lost while the agent started: " +
                              session.LastError() + ItSaid(stderr_tail.Get(), scanner.Skipped()));
    }
    if (stream->AtEof() || stream->Closed()) {
      const std::optional<int> status =
          AwaitExit(session, *stream, Deadline::After(kExitStatusWait).Earlier(deadline));
      if (status == kAgentMissing || status == 126 || status == 127)
        return std::unique_ptr<SshStream>();
      return session.Fail(
          ExitCode::kUnavailable,
          "the agent exited before its hello line (" +
              (status ? "exit status " + std::to_string(*status) : std::string("by a signal")) +
              ")" + ItSaid(stderr_tail.Get(), scanner.Skipped()) +
              "; check that the account can run commands: ssh HOST true");
    }
    if (Result<void> more = session.WaitIo(deadline); !more) {
      return Error{more.error().code,
                   more.error().message + ItSaid(stderr_tail.Get(), scanner.Skipped())};
    }
  }
}

// Streams the file to the command's stdin. An early end of the command is no error here: its exit
// status tells.
Result<void> SendFile(SshSession& session, SshStream& stream, const std::string& path,
                      Deadline deadline) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error{ExitCode::kIo, "cannot open " + path + ": " + std::strerror(errno)};
  std::vector<char> chunk(kChunkBytes);
  std::string_view unsent;
  while (!stream.Closed() && !stream.AtEof()) {
    if (unsent.empty()) {
      const ssize_t n = ::read(file.get(), chunk.data(), chunk.size());
      if (n < 0) return Error{ExitCode::kIo, "cannot read " + path + ": " + std::strerror(errno)};
      if (n == 0) break;
      unsent = {chunk.data(), static_cast<size_t>(n)};
    }
    if (!session.Process())
      return session.Fail(ExitCode::kUnavailable,
                          "the connection was lost: " + session.LastError());
    const int n = session.WritePending() ? 0 : stream.Write(unsent);
    if (n < 0) break;
    unsent.remove_prefix(static_cast<size_t>(n));
    // A short wait at most: with keys being exchanged there may be room before anything arrives.
    if (n == 0 && deadline.Expired()) return session.WaitIo(deadline);
    if (n == 0) (void)session.WaitIo(Deadline::After(milliseconds(5)).Earlier(deadline));
  }
  stream.SendEof();
  return {};
}

Result<void> Install(SshSession& session, const AgentBinary& agent, Deadline deadline) {
  DSL_TRY_ASSIGN(const std::string sha256, Sha256OfFile(agent.path));
  TailBuffer stderr_tail;
  DSL_TRY_ASSIGN(auto stream,
                 session.Exec(ForLoginShell(InstallScript(agent, sha256)), stderr_tail, deadline));
  DSL_TRY(SendFile(session, *stream, agent.path, deadline));
  const std::optional<int> status = AwaitExit(session, *stream, deadline);
  if (status == 0) return {};
  if (!status && deadline.Expired()) {
    return session.Fail(ExitCode::kUnavailable,
                        "the agent could not be copied in time; is the network slow?");
  }
  return session.Fail(ExitCode::kUnavailable,
                      "the agent could not be installed" + ItSaid(stderr_tail.Get()));
}

}  // namespace

std::string StartScript(std::string_view build_id, const AgentRole& role, std::string_view nonce) {
  std::string arguments;
  for (const std::string& argument : AgentArguments(role, nonce))
    arguments += " " + Plain(argument, "-");
  return Substitute(kStart, {{"%BUILD_ID%", Plain(build_id)}, {"%ARGUMENTS%", arguments}});
}

std::string InstallScript(const AgentBinary& agent, std::string_view sha256) {
  return Substitute(kInstall, {{"%BUILD_ID%", Plain(agent.build_id)},
                               {"%MACHINE%", Plain(agent.machine)},
                               {"%SIZE%", std::to_string(agent.size_bytes)},
                               {"%SHA256%", Plain(sha256)}});
}

std::string EngineScript(const AgentBinary& agent, std::string_view sha256, const AgentRole& role,
                         const EngineStart& start) {
  std::string arguments;
  for (const std::string& argument : AgentArguments(role, start.nonce))
    arguments += " " + Plain(argument, "-");
  std::string sources;
  std::string endpoints;
  for (const std::string& endpoint : start.endpoints) {
    std::string plain = Plain(endpoint, ".:");
    endpoints += (endpoints.empty() ? "" : ",") + plain;
    if (const size_t colon = plain.rfind(':'); colon != std::string::npos) plain[colon] = '/';
    sources += (sources.empty() ? "" : " ") + plain;
  }
  return Substitute(kEngineStart, {{"%INSTALL%", InstallScript(agent, sha256)},
                                   {"%BUILD_ID%", Plain(agent.build_id)},
                                   {"%SOURCES%", sources},
                                   {"%TICKET%", Plain(start.ticket)},
                                   {"%NONCE%", Plain(start.nonce)},
                                   {"%PIN%", Plain(start.pin)},
                                   {"%ENDPOINTS%", endpoints},
                                   {"%ARGUMENTS%", arguments},
                                   {"%PLACE%", start.place}});
}

std::string ForLoginShell(const std::string& script) { return "/bin/sh -c '" + script + "'"; }

Result<std::unique_ptr<SshStream>> StartAgent(SshSession& session, const AgentBinary& agent,
                                              const AgentRole& role, TailBuffer& stderr_tail,
                                              Deadline deadline) {
  DSL_TRY_ASSIGN(auto stream, TryStart(session, agent, role, stderr_tail, deadline));
  if (stream) return stream;
  session.Begin(SshStep::kCopyAgent);
  DSL_TRY(Install(session, agent, deadline));
  session.Begin(SshStep::kStartAgent);
  DSL_TRY_ASSIGN(stream, TryStart(session, agent, role, stderr_tail, deadline));
  if (stream) return stream;
  return session.Fail(ExitCode::kUnavailable,
                      "the agent is installed there and still cannot be started" +
                          ItSaid(stderr_tail.Get()) +
                          "; check that its home folder is not mounted noexec");
}

}  // namespace dslaunch
