#include "cli/transport/ssh/ssh_bootstrap.h"

#include <optional>
#include <utility>

#include "cli/transport/agent_copy.h"
#include "cli/transport/agent_scripts.h"
#include "cli/transport/hello.h"
#include "cli/transport/ssh/ssh_dial.h"

namespace dslaunch {
namespace {

constexpr milliseconds kExitStatusWait{2000};

// Waits for the end of a command whose output has ended or is not needed, and returns its exit
// status.
std::optional<int> AwaitExit(SshSession& session, SshStream& stream, Deadline deadline) {
  while (session.Process() && !stream.Closed() && !stream.exit_status()) {
    stream.inbound().clear();
    if (!session.WaitIo(deadline)) break;
  }
  return stream.exit_status();
}

struct Started {
  std::unique_ptr<SshStream> stream;  // stream of the agent; null if the node lacks the agent
  std::string machine;                // node's machine type; empty if unknown
};

// Tries once to start the agent, without installing it.
Result<Started> TryStart(SshSession& session, const AgentBinary& agent, const AgentRole& role,
                         TailBuffer& stderr_tail, Deadline deadline) {
  const std::string nonce = MakeNonce();
  DSL_TRY_ASSIGN(auto stream, session.Exec(ForLoginShell(StartScript(agent, role, nonce)),
                                           stderr_tail, deadline));
  HelloScanner scanner(nonce);
  while (true) {
    const bool alive = session.Process();
    stream->Refill();
    const HelloScanner::State state = scanner.Feed(std::exchange(stream->inbound(), ""));
    if (state == HelloScanner::State::kFound) {
      if (!HasBuild(agent, scanner.build_id())) {
        return session.Fail(ExitCode::kUnavailable, OtherBuildText(agent, scanner.build_id()));
      }
      stream->inbound() = scanner.leftover();
      return Started{std::move(stream), scanner.Machine()};
    }
    if (state == HelloScanner::State::kFailed) {
      return session.Fail(ExitCode::kUnavailable,
                          "the agent's hello line was not found: " + scanner.reason() +
                              OutputClause(stderr_tail.Get(), scanner.Skipped()) +
                              "; keep the shell's start-up files quiet for non-interactive logins");
    }
    if (!alive) {
      return session.Fail(
          ExitCode::kUnavailable,
          "the connection was lost while the agent started: " + session.LastError() +
              OutputClause(stderr_tail.Get(), scanner.Skipped()));
    }
    if (stream->AtEof() || stream->Closed()) {
      const std::optional<int> status =
          AwaitExit(session, *stream, Deadline::After(kExitStatusWait).Earlier(deadline));
      if (status == kAgentMissing || status == 126 || status == 127)
        return Started{nullptr, scanner.Machine()};
      return session.Fail(
          ExitCode::kUnavailable,
          "the agent exited before its hello line (" +
              (status ? "exit status " + std::to_string(*status) : std::string("by a signal")) +
              ")" + OutputClause(stderr_tail.Get(), scanner.Skipped()) +
              "; check that the account can run commands: ssh HOST true");
    }
    if (Result<void> more = session.WaitIo(deadline); !more) {
      return Error{more.error().code,
                   more.error().message + OutputClause(stderr_tail.Get(), scanner.Skipped())};
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

// Waits for the install script's request. Returns kWaiting if the command has ended.
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

// Sends the bytes to the command's stdin. Returns no error if the command ends early, because its
// exit status then shows the cause.
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
    // During a key exchange, the stream may accept bytes again before anything arrives from the
    // node, so the wait is brief.
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
    return session.Fail(ExitCode::kUnavailable, TimedOutAt(ConnectStep::kCopyAgent));
  return session.Fail(ExitCode::kUnavailable,
                      "the agent could not be installed" + OutputClause(stderr_tail.Get()));
}

}  // namespace

Result<std::unique_ptr<SshStream>> StartAgent(SshSession& session, const AgentBinary& agent,
                                              const AgentRole& role, TailBuffer& stderr_tail,
                                              Deadline deadline) {
  DSL_TRY_ASSIGN(Started started, TryStart(session, agent, role, stderr_tail, deadline));
  if (started.stream) return std::move(started.stream);
  session.Begin(ConnectStep::kCopyAgent);
  const std::optional<AgentBinary> fitting = AgentFor(agent, started.machine);
  if (!fitting) return session.Fail(ExitCode::kUnavailable, NoAgentText(agent, started.machine));
  const Clock::time_point began = Clock::now();
  DSL_TRY(Install(session, *fitting));
  deadline = Deadline::At(deadline.when() + (Clock::now() - began));
  session.Begin(ConnectStep::kStartAgent);
  DSL_TRY_ASSIGN(started, TryStart(session, agent, role, stderr_tail, deadline));
  if (started.stream) return std::move(started.stream);
  return session.Fail(ExitCode::kUnavailable,
                      "the agent is installed in " + NodeFolderOf(agent) +
                          " there and still cannot be started" + OutputClause(stderr_tail.Get()) +
                          "; check that this folder is not mounted noexec, or choose another with "
                          "--agent_dir");
}

}  // namespace dslaunch
