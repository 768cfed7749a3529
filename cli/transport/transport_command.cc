#include "cli/transport/transport_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/backoff.h"
#include "base/text/sanitize.h"
#include "cli/transport/agent_copy.h"
#include "cli/transport/agent_digest.h"
#include "cli/transport/agent_scripts.h"
#include "cli/transport/hello.h"
#include "cli/transport/login_gate.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLastOutputWait{300};

// Returns whether stderr shows a failure that only the user can fix, so that a retry would not
// help.
bool IsRefusedText(const std::string& stderr_tail) {
  return stderr_tail.find("Permission denied") != std::string::npos ||
         stderr_tail.find("verification failed") != std::string::npos;
}

// Waits for the install script's request. Returns kWaiting if the script's output has ended.
Result<CopyDialog::State> AwaitCopyRequest(int stream, std::string_view nonce, Deadline deadline) {
  CopyDialog dialog(nonce);
  std::array<char, 4096> chunk;
  while (true) {
    pollfd ready{stream, POLLIN, 0};
    const Deadline by = Deadline::After(kCopyStall).Earlier(deadline);
    if (::poll(&ready, 1, by.PollMs()) == 0)
      return Error{ExitCode::kUnavailable, TimedOutAt(ConnectStep::kCopyAgent)};
    const ssize_t n = ::recv(stream, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return CopyDialog::State::kWaiting;
    const CopyDialog::State state = dialog.Feed({chunk.data(), static_cast<size_t>(n)});
    if (state != CopyDialog::State::kWaiting) return state;
  }
}

// Sends the bytes to the program's stdin. Returns no error if the program ends early, because its
// exit status then shows the cause.
Result<void> SendAll(int stream, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return {};
    pollfd room{stream, POLLOUT, 0};
    const Deadline by = Deadline::After(kCopyStall).Earlier(deadline);
    if (::poll(&room, 1, by.PollMs()) == 0)
      return Error{ExitCode::kUnavailable, TimedOutAt(ConnectStep::kCopyAgent)};
  }
  ::shutdown(stream, SHUT_WR);
  return {};
}

}  // namespace

Result<std::unique_ptr<RunningProgram>> CommandTransport::Run(const NodeTarget& target,
                                                              const std::string& script) const {
  Result<std::unique_ptr<RunningProgram>> child =
      starter_->Start(command_->CommandLine(target, script));
  if (child) return child;
  return Fail(target, ExitCode::kUnavailable, "it cannot be started: " + child.error().message);
}

Error CommandTransport::Fail(const NodeTarget& target, ExitCode code,
                             const std::string& text) const {
  return Error{code, "node '" + target.name + "' (" +
                         (target.user.empty() ? "" : target.user + "@") + target.host + " by " +
                         command_->Name() + starter_->Where() + "): " + text + hint_};
}

Result<std::unique_ptr<NodeLink>> CommandTransport::Connect(const NodeTarget& target,
                                                            Deadline deadline) {
  const std::string gate = command_->GateName(target, deadline);
  const milliseconds limit = deadline.Left();
  std::optional<LoginGate::Turn> turn =
      gate.empty() ? std::optional<LoginGate::Turn>() : LoginGate::Shared().Enter(gate, deadline);
  if (!gate.empty() && !turn) {
    return Fail(target, ExitCode::kUnavailable,
                "no login slot became free in time, because too many logins use one sshd or do not "
                "complete; raise --connect_timeout");
  }
  const Deadline by = Deadline::After(limit);
  // The program's output does not reveal its steps, so all its work before the command runs is one
  // step.
  Begin(ConnectStep::kConnect);
  std::string machine;
  DSL_TRY_ASSIGN(std::unique_ptr<ChildLink> link, Start(target, by, machine));
  if (!link) {
    Begin(ConnectStep::kCopyAgent);
    const std::optional<AgentBinary> fitting = AgentFor(agent_, machine);
    if (!fitting) return Fail(target, ExitCode::kUnavailable, NoAgentText(agent_, machine));
    const Clock::time_point began = Clock::now();
    DSL_TRY(Install(target, *fitting));
    Begin(ConnectStep::kStartAgent);
    DSL_TRY_ASSIGN(link, Start(target, Deadline::At(by.when() + (Clock::now() - began)), machine));
  }
  if (link) {
    Begin(ConnectStep::kRunning);
    link->SetNotice(notice_);
    return std::unique_ptr<NodeLink>(std::move(link));
  }
  return Fail(target, ExitCode::kUnavailable,
              "the agent is installed in " + NodeFolderOf(agent_) +
                  " there and still cannot be started; check that this folder is not mounted "
                  "noexec, or choose another with --agent_dir");
}

Result<std::unique_ptr<ChildLink>> CommandTransport::Start(const NodeTarget& target,
                                                           Deadline deadline,
                                                           std::string& machine) const {
  for (int attempt = 0;; ++attempt) {
    const std::string nonce = MakeNonce();
    DSL_TRY_ASSIGN(std::unique_ptr<RunningProgram> child,
                   Run(target, StartScript(agent_, role_, nonce)));
    auto link = std::make_unique<ChildLink>(std::move(child), target.host, nonce);
    HelloScanner scanner(nonce);
    const Result<void> hello = link->AwaitHello(scanner, deadline);
    machine = scanner.Machine();
    if (hello && HasBuild(agent_, scanner.build_id())) {
      if (role_.resumable || role_.kind == AgentRole::Kind::kResume) {
        link->SetResumable(
            [command = command_](int status) { return command->HasFailedItself(status); });
      }
      return link;
    }
    if (hello) {
      return Fail(target, ExitCode::kUnavailable, OtherBuildText(agent_, scanner.build_id()));
    }
    const std::optional<int> status = link->child().WaitEnd(Deadline::After(kLastOutputWait));
    const std::string printed = link->StderrTail();
    if (!status) {
      link->child().KillGroup();
      return Fail(
          target,
          hello.error().code == ExitCode::kTimedOut ? ExitCode::kUnavailable : hello.error().code,
          "the agent " + hello.error().message + OutputClause(printed, scanner.Skipped()) +
              "; check that the same program reaches it: " + command_->TryThis(target));
    }
    if (!command_->HasFailedItself(*status)) {
      const int code = WEXITSTATUS(*status);
      if (code == kAgentMissing || code == 126 || code == 127) return std::unique_ptr<ChildLink>();
      return Fail(target, ExitCode::kUnavailable,
                  "the agent " + hello.error().message + " (" + EndInWords(*status) + ")" +
                      OutputClause(printed, scanner.Skipped()) +
                      "; check that the account can run commands: " + command_->TryThis(target));
    }
    const Deadline pause =
        Deadline::After(PauseAfter(attempt, kFirstLoginPause, kLongestLoginPause, RandomPart()));
    if (!IsTurnedAwayText(printed) || attempt + 1 == kLoginAttempts ||
        pause.when() >= deadline.when()) {
      return Fail(target, IsRefusedText(printed) ? ExitCode::kNoPermission : ExitCode::kUnavailable,
                  "it ended with " + EndInWords(*status) + OutputClause(printed) +
                      "; it has no terminal to ask at: compare with " + command_->TryThis(target));
    }
    std::this_thread::sleep_until(pause.when());
  }
}

// Installs the agent with the file of the starter. Ignores the program's output, because its exit
// status shows whether the installation succeeded.
Result<bool> CommandTransport::InstallByStarter(const NodeTarget& target,
                                                const AgentBinary& agent) const {
  DSL_TRY_ASSIGN(const std::string sha256, AgentDigest(agent.path, OwnCacheFolder()));
  Result<std::unique_ptr<RunningProgram>> child = starter_->StartReadingAgent(
      command_->CommandLine(target, InstallScript(agent, sha256, MakeNonce(), CopyForm::kRaw)));
  if (!child)
    return Fail(target, ExitCode::kUnavailable, "it cannot be started: " + child.error().message);
  if (!*child) return false;
  const std::optional<int> status = (*child)->WaitEnd(Deadline::After(kCopyLimit));
  if (status && *status == 0) return true;
  (*child)->KillGroup();
  // A relay has the agent for its own machine type, which may not be the node's, so this is not an
  // error.
  if (status && !agent_.others.empty()) return false;
  return Fail(target, ExitCode::kUnavailable,
              status ? "the agent could not be installed" + OutputClause((*child)->StderrTail())
                     : TimedOutAt(ConnectStep::kCopyAgent));
}

Result<void> CommandTransport::Install(const NodeTarget& target, const AgentBinary& agent) const {
  DSL_TRY_ASSIGN(const bool is_installed, InstallByStarter(target, agent));
  if (is_installed) return {};
  DSL_TRY_ASSIGN(const std::shared_ptr<const PackedAgent> packed, PackAgent(agent));
  const Deadline deadline = Deadline::After(kCopyLimit);
  std::optional<CopyGate::Turn> turn;
  for (; !turn; std::this_thread::sleep_for(kCopyTurnPoll)) {
    if (deadline.Expired()) return Fail(target, ExitCode::kUnavailable, "the agent was not copied");
    if (std::optional<CopyGate::Turn> entered = CopyGate::Shared().TryEnter())
      turn.emplace(*std::move(entered));
  }
  const std::string nonce = MakeNonce();
  DSL_TRY_ASSIGN(std::unique_ptr<RunningProgram> child,
                 Run(target, InstallScript(agent, packed->sha256, nonce)));
  const UniqueFd stream = child->TakeStream();
  const Result<CopyDialog::State> asked = AwaitCopyRequest(stream.get(), nonce, deadline);
  Result<void> sent = asked.ok() ? Result<void>() : asked.error();
  if (asked.ok() && *asked == CopyDialog::State::kSendGzip)
    sent = SendAll(stream.get(), packed->gzip, deadline);
  if (asked.ok() && *asked == CopyDialog::State::kSendRaw) {
    const Result<std::shared_ptr<const std::string>> raw = RawAgent(agent);
    sent = raw.ok() ? SendAll(stream.get(), **raw, deadline) : raw.error();
  }
  const std::optional<int> status = sent ? child->WaitEnd(Deadline::After(kCopyEnd)) : std::nullopt;
  if (status && *status == 0) return {};
  if (status) {
    return Fail(target, ExitCode::kUnavailable,
                "the agent could not be installed" + OutputClause(child->StderrTail()));
  }
  child->KillGroup();
  return Fail(target, ExitCode::kUnavailable,
              sent ? TimedOutAt(ConnectStep::kCopyAgent) : sent.error().message);
}

}  // namespace dslaunch
