#include "cli/transport/ssh_bootstrap.h"

#include <optional>
#include <utility>

#include "base/text/substitute.h"
#include "cli/transport/agent_copy.h"
#include "cli/transport/hello.h"
#include "cli/transport/ssh_dial.h"

namespace dslaunch {
namespace {

constexpr milliseconds kExitStatusWait{2000};
constexpr char kDefaultFolder[] = R"("$HOME/.cache/dslaunch")";

// Uses only shell built-ins before the exec, because it delays every start. The full checks ran at
// the installation.
constexpr std::string_view kStart =
    R"sh(d=%FOLDER%; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh([ -O "$d" ] && [ ! -L "$d" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ] || exit 97; )sh"
    R"sh(exec "$a"%ARGUMENTS%)sh";

// The agent's bytes arrive on stdin after the script has requested a form. Every parent folder must
// belong to the user or root, and no other user may be able to rename entries in it. The file gets
// its final name only when it is complete, on disk and known to run on this node.
//
// Nodes may share the folder (a home on NFS). A folder for the build is the lock, because mkdir is
// atomic on NFS, and the file in it is the holder's copy; other nodes wait until the agent appears.
// Clocks differ, so a lock counts as abandoned when nothing in it has changed for a number of
// looks. Of the nodes that see this, one takes the lock over: only one can rename the file that
// they all saw. A lock without a file is removed, and a holder that had just created it tries
// again. Leftovers of an interrupted copy are removed with the lock or after a day, and agents that
// no job has started for 90 days too. Nothing is removed if this copy itself looks a day old,
// because then the node's clock is ahead of the file server's.
constexpr std::string_view kInstall =
    R"sh(umask 077; l=; t=; a=; )sh"
    R"sh(good() { [ -n "$a" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ]; }; )sh"
    R"sh(say() { echo "DSLAUNCH-COPY %NONCE% $1"; }; )sh"
    R"sh(drop() { [ -z "$t" ] || rm -f "$t"; [ -z "$l" ] || rmdir "$l" 2> /dev/null; }; )sh"
    R"sh(fail() { drop; echo "$1" >&2; exit 98; }; )sh"
    R"sh(late() { drop; good && exit 0; echo "$1" >&2; exit 98; }; )sh"
    R"sh(trap "drop; exit 98" HUP INT PIPE TERM; )sh"
    R"sh(%NEEDS_HOME%)sh"
    R"sh(m=$(uname -m); [ "$m" = %MACHINE% ] || fail "the node is a $m machine, the agent of this dslaunch is for %MACHINE%; leave the node out (--exclude)"; )sh"
    R"sh(d=%FOLDER%; )sh"
    R"sh(mkdir -p "$d" || fail "cannot create $d: is it writable, and the disk not full? --agent_dir chooses another folder"; )sh"
    R"sh([ -O "$d" ] && [ ! -L "$d" ] || fail "$d must be a folder of this account and no link; remove it"; )sh"
    R"sh(chmod 700 "$d" || fail "cannot set the mode of $d"; )sh"
    R"sh(p=$(cd "$d" && pwd -P) || fail "cannot enter $d"; u=$(id -u); )sh"
    R"sh(while :; do )sh"
    R"sh([ -n "$(find "$p" -prune "(" -user 0 -o -user "$u" ")" "(" ! -perm -020 ! -perm -002 -o -perm -1000 ")")" ] )sh"
    R"sh(|| fail "others may change $p, so no program is started from below it; fix: chmod go-w $p"; )sh"
    R"sh([ "$p" != / ] || break; p="${p%/*}"; p="${p:-/}"; done; )sh"
    R"sh(a="$d/agent-%BUILD_ID%"; k="$d/.copy-%BUILD_ID%"; q=; s=0; e=0; )sh"
    R"sh(hold() { t="$k/%NONCE%"; if { true > "$t"; } 2> /dev/null; then l="$k"; )sh"
    R"sh(else t=; e=$((e+1)); rmdir "$k" 2> /dev/null; return 1; fi; }; )sh"
    R"sh(take_over() { if [ ! -e "$k/$o" ]; then rmdir "$k" 2> /dev/null; return 1; fi; )sh"
    R"sh(mv "$k/$o" "$k/%NONCE%.old" 2> /dev/null && hold || return 1; )sh"
    R"sh(for f in "$k"/*; do [ "$f" = "$t" ] || rm -f "$f"; done; }; )sh"
    R"sh(while ! { mkdir "$k" 2> /dev/null && hold; }; do )sh"
    R"sh(if good; then say have; exit 0; fi; )sh"
    R"sh([ -d "$k" ] || e=$((e+1)); [ "$e" -lt 5 ] || fail "cannot create $k: is the disk full?"; )sh"
    R"sh(set -- "$k"/*; o=${1##*/}; r=$(ls -l "$k" 2> /dev/null); )sh"
    R"sh(if [ "$r" = "$q" ]; then s=$((s+1)); else s=0; q=$r; fi; )sh"
    R"sh(if [ "$s" -ge %STALL% ]; then s=0; if take_over; then break; fi; fi; )sh"
    R"sh(say wait; sleep 1; done; )sh"
    R"sh(if good; then drop; say have; exit 0; fi; )sh"
    R"sh(if [ -z "$(find "$t" -mtime +0)" ]; then )sh"
    R"sh(find "$d/." ! -name . -prune "(" -name ".copy-*" -o -name ".agent-*" ")" -mtime +0 -exec rm -rf {} + ; )sh"
    R"sh(find "$d/." ! -name . -prune -type f -name "agent-*" -mtime +89 -exec rm -f {} + ; fi; )sh"
    R"sh(%TAKE% )sh"
    R"sh(|| late "cannot write to $d: is the disk full?"; )sh"
    R"sh(n=$(wc -c < "$t"); [ "$n" -eq %SIZE% ] || late "only $n of %SIZE% bytes arrived in $d"; )sh"
    R"sh(s=$(sha256sum < "$t"); [ "${s%% *}" = %SHA256% ] || late "the copy in $d differs from what was sent"; )sh"
    R"sh(chmod 700 "$t" || late "cannot make $t executable"; )sh"
    R"sh("$t" --version > /dev/null; s=$?; )sh"
    R"sh([ "$s" -ne 126 ] || late "programs in $d may not be started (mount option noexec?); choose another folder with --agent_dir"; )sh"
    R"sh([ "$s" -eq 0 ] || late "the agent cannot run there: see the line before"; )sh"
    R"sh(sync "$t" 2> /dev/null || sync; )sh"
    R"sh(ln "$t" "$a" 2> /dev/null || [ -e "$a" ] || mv -n "$t" "$a"; drop; )sh"
    R"sh(good || fail "$a is not the agent; remove it")sh";

// Shell code that receives the bytes: after a request for a form that the node can read, or
// unrequested.
constexpr char kTakeAsked[] =
    R"sh(if command -v gzip > /dev/null 2>&1; then say gzip; gzip -dc > "$t"; else say raw; cat > "$t"; fi)sh";
constexpr char kTakeRaw[] = R"sh(cat > "$t")sh";

// Looks, one per second, at another node's copy that makes no progress.
constexpr int kAbandonedAfterLooks = 20;

// Returns the folder for the scripts, encoded in octal so that the shell interprets none of its
// characters.
std::string FolderWord(const AgentBinary& agent) {
  if (agent.node_folder.empty()) return kDefaultFolder;
  std::string word = R"sh("$(printf "%b" ")sh";
  for (const unsigned char c : agent.node_folder) {
    word += "\\0";
    for (const int shift : {6, 3, 0}) word += static_cast<char>('0' + ((c >> shift) & 7));
  }
  return word + R"sh(")/dslaunch-$(id -u)")sh";
}

// For all nodes of a launcher at once. A node without the agent fetches it from dslaunch's own
// port, because no launcher connects the stdin of all nodes. One line on stdout reports a failure.
constexpr std::string_view kCallBack =
    R"sh(d=%FOLDER%; a="$d/agent-%BUILD_ID%"; )sh"
    R"sh(ready() { [ -O "$d" ] && [ ! -L "$d" ] && [ -O "$a" ] && [ -x "$a" ] && [ ! -L "$a" ]; }; )sh"
    R"sh(ready || w=$({ for e in %SOURCES%; do )sh"
    R"sh(bash -c "exec 3<>/dev/tcp/$e && echo %TICKET% >&3 && cat <&3" 2> /dev/null && break; done; } )sh"
    R"sh(| ( %INSTALL% ) 2>&1) || { set -f; echo DSLAUNCH-FAILED %NONCE% %PLACE% $w; exit 98; }; )sh"
    R"sh(exec "$a" call-back --nonce %NONCE% %PLACE% %PIN% %ENDPOINTS%%ARGUMENTS%)sh";

// Keeps only these characters and `also` of a text from a file or a variable, because a shell on
// the node parses it.
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

// Waits for the end of a command whose output has ended or is not needed.
std::optional<int> AwaitExit(SshSession& session, SshStream& stream, Deadline deadline) {
  while (session.Process() && !stream.Closed() && !stream.exit_status()) {
    stream.inbound().clear();
    if (!session.WaitIo(deadline)) break;
  }
  return stream.exit_status();
}

// Tries once to start the agent. Returns null if the node lacks it.
Result<std::unique_ptr<SshStream>> TryStart(SshSession& session, const AgentBinary& agent,
                                            const AgentRole& role, TailBuffer& stderr_tail,
                                            Deadline deadline) {
  const std::string nonce = MakeNonce();
  DSL_TRY_ASSIGN(auto stream, session.Exec(ForLoginShell(StartScript(agent, role, nonce)),
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
                                agent.build_id + "; remove " + NodeFolderOf(agent) +
                                " on the node and try again");
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

Error ConnectionLost(SshSession& session) {
  return session.Fail(ExitCode::kUnavailable, "the connection was lost: " + session.LastError());
}

Result<CopyGate::Turn> AwaitCopyTurn(SshSession& session, Deadline deadline) {
  while (true) {
    if (std::optional<CopyGate::Turn> turn = CopyGate::Shared().TryEnter()) return *std::move(turn);
    if (!session.Process()) return ConnectionLost(session);
    if (deadline.Expired() ||
        WaitForFd(-1, 0, session.stop_fd(), Deadline::After(kCopyTurnPoll)) == Waited::kStopped) {
      return session.Fail(ExitCode::kUnavailable, "the agent was not copied");
    }
  }
}

// Waits for the script's request. Returns kWaiting if the command has ended.
Result<CopyDialog::State> AwaitCopyRequest(SshSession& session, SshStream& stream,
                                           std::string_view nonce, Deadline deadline) {
  CopyDialog dialog(nonce);
  Deadline stalled = Deadline::After(kCopyStall);
  while (true) {
    const bool alive = session.Process();
    stream.Refill();
    const std::string text = std::exchange(stream.inbound(), "");
    if (!text.empty()) stalled = Deadline::After(kCopyStall);
    const CopyDialog::State state = dialog.Feed(text);
    if (state != CopyDialog::State::kWaiting || stream.AtEof() || stream.Closed()) return state;
    if (!alive) return ConnectionLost(session);
    DSL_TRY(session.WaitIo(stalled.Earlier(deadline)));
  }
}

// Sends the bytes to the command's stdin. If the command ends early, its exit status shows why, so
// that is not an error here.
Result<void> SendAll(SshSession& session, SshStream& stream, std::string_view bytes,
                     Deadline deadline) {
  Deadline stalled = Deadline::After(kCopyStall);
  while (!bytes.empty() && !stream.Closed() && !stream.AtEof()) {
    if (!session.Process()) return ConnectionLost(session);
    const int n = session.WritePending() ? 0 : stream.Write(bytes);
    if (n < 0) break;
    bytes.remove_prefix(static_cast<size_t>(n));
    if (n > 0) stalled = Deadline::After(kCopyStall);
    const Deadline by = stalled.Earlier(deadline);
    // Wait only briefly, because during a key exchange there may be room before anything arrives.
    if (n == 0 && by.Expired()) return session.WaitIo(by);
    if (n == 0) (void)session.WaitIo(Deadline::After(milliseconds(5)).Earlier(by));
  }
  stream.SendEof();
  return {};
}

Result<void> Install(SshSession& session, const AgentBinary& agent) {
  DSL_TRY_ASSIGN(const std::shared_ptr<const PackedAgent> packed, PackAgent(agent));
  const GrantedWait granted = session.GrantWait(kCopyLimit);
  DSL_TRY_ASSIGN(const CopyGate::Turn turn, AwaitCopyTurn(session, granted.deadline()));
  const std::string nonce = MakeNonce();
  TailBuffer stderr_tail;
  DSL_TRY_ASSIGN(auto stream,
                 session.Exec(ForLoginShell(InstallScript(agent, packed->sha256, nonce)),
                              stderr_tail, Deadline::After(kCopyStall)));
  DSL_TRY_ASSIGN(const CopyDialog::State asked,
                 AwaitCopyRequest(session, *stream, nonce, granted.deadline()));
  if (asked == CopyDialog::State::kSendGzip)
    DSL_TRY(SendAll(session, *stream, packed->gzip, granted.deadline()));
  if (asked == CopyDialog::State::kSendRaw) {
    DSL_TRY_ASSIGN(const std::shared_ptr<const std::string> raw, RawAgent(agent));
    DSL_TRY(SendAll(session, *stream, *raw, granted.deadline()));
  }
  const Deadline end = Deadline::After(kCopyEnd);
  const std::optional<int> status = AwaitExit(session, *stream, end);
  if (status == 0) return {};
  if (!status && end.Expired())
    return session.Fail(ExitCode::kUnavailable, TimedOutAt(SshStep::kCopyAgent));
  return session.Fail(ExitCode::kUnavailable,
                      "the agent could not be installed" + ItSaid(stderr_tail.Get()));
}

}  // namespace

std::string NodeFolderOf(const AgentBinary& agent) {
  return agent.node_folder.empty() ? "~/.cache/dslaunch" : agent.node_folder + "/dslaunch-UID";
}

std::string StartScript(const AgentBinary& agent, const AgentRole& role, std::string_view nonce) {
  std::string arguments;
  for (const std::string& argument : AgentArguments(role, nonce))
    arguments += " " + Plain(argument, "-");
  return Substitute(kStart, {{"%FOLDER%", FolderWord(agent)},
                             {"%BUILD_ID%", Plain(agent.build_id)},
                             {"%ARGUMENTS%", arguments}});
}

std::string InstallScript(const AgentBinary& agent, std::string_view sha256, std::string_view nonce,
                          CopyForm form) {
  const char* needs_home =
      agent.node_folder.empty() ? R"sh([ -n "$HOME" ] || fail "HOME is not set there"; )sh" : "";
  return Substitute(kInstall, {{"%NEEDS_HOME%", needs_home},
                               {"%TAKE%", form == CopyForm::kRaw ? kTakeRaw : kTakeAsked},
                               {"%FOLDER%", FolderWord(agent)},
                               {"%BUILD_ID%", Plain(agent.build_id)},
                               {"%MACHINE%", Plain(agent.machine)},
                               {"%STALL%", std::to_string(kAbandonedAfterLooks)},
                               {"%SIZE%", std::to_string(agent.size_bytes)},
                               {"%SHA256%", Plain(sha256)},
                               {"%NONCE%", Plain(nonce)}});
}

std::string CallBackScript(const AgentBinary& agent, std::string_view sha256, const AgentRole& role,
                           const CallBackStart& start) {
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
  return Substitute(kCallBack,
                    {{"%INSTALL%", InstallScript(agent, sha256, start.nonce, CopyForm::kRaw)},
                     {"%FOLDER%", FolderWord(agent)},
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
  const Clock::time_point began = Clock::now();
  DSL_TRY(Install(session, agent));
  deadline = Deadline::At(deadline.when() + (Clock::now() - began));
  session.Begin(SshStep::kStartAgent);
  DSL_TRY_ASSIGN(stream, TryStart(session, agent, role, stderr_tail, deadline));
  if (stream) return stream;
  return session.Fail(ExitCode::kUnavailable,
                      "the agent is installed in " + NodeFolderOf(agent) +
                          " there and still cannot be started" + ItSaid(stderr_tail.Get()) +
                          "; check that this folder is not mounted noexec, or choose another with "
                          "--agent_dir");
}

}  // namespace dslaunch
