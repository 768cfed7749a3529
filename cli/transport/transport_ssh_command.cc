#include "cli/transport/transport_ssh_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/backoff.h"
#include "base/sanitize.h"
#include "cli/transport/hello.h"
#include "cli/transport/login_gate.h"
#include "cli/transport/ssh_bootstrap.h"
#include "cli/transport/ssh_config.h"
#include "cli/transport/ssh_proxy.h"

namespace dslaunch {
namespace {

constexpr int kSshFailed = 255;  // as ssh ends when it, not the command, has failed
constexpr milliseconds kConfigLimit{3000};
constexpr milliseconds kLastOutputWait{300};

bool HasFailedItself(int wait_status) {
  return !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) == kSshFailed;
}

// Failures that a user must act on, and that no retry can mend.
bool IsRefusedText(const std::string& stderr_tail) {
  return stderr_tail.find("Permission denied") != std::string::npos ||
         stderr_tail.find("verification failed") != std::string::npos;
}

// Streams the file to the program's stdin. Its early end is no error here: its exit status tells.
Result<void> SendFile(int stream, const std::string& path, Deadline deadline) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file)
    return Error{ExitCode::kIo, "cannot open " + Truncate(path) + ": " + std::strerror(errno)};
  std::array<char, 65536> chunk;
  while (true) {
    const ssize_t size = ::read(file.get(), chunk.data(), chunk.size());
    if (size < 0)
      return Error{ExitCode::kIo, "cannot read " + Truncate(path) + ": " + std::strerror(errno)};
    if (size == 0) break;
    for (ssize_t sent = 0; sent < size;) {
      const ssize_t n = ::send(stream, chunk.data() + sent, static_cast<size_t>(size - sent),
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) sent += n;
      if (n >= 0 || errno == EINTR) continue;
      if (errno != EAGAIN) return {};
      pollfd room{stream, POLLOUT, 0};
      if (::poll(&room, 1, deadline.PollMs()) == 0)
        return Error{ExitCode::kUnavailable,
                     "the agent could not be copied in time; is the network slow?"};
    }
  }
  ::shutdown(stream, SHUT_WR);
  return {};
}

}  // namespace

std::vector<std::string> SshCommandTransport::CommandLine(const NodeTarget& target,
                                                          const std::string& command) const {
  std::vector<std::string> argv = options_.command;
  if (target.port > 0) argv.insert(argv.end(), {"-p", std::to_string(target.port)});
  if (!target.user.empty()) argv.insert(argv.end(), {"-l", target.user});
  argv.insert(argv.end(), {"-T", target.host, command});
  return argv;
}

Result<std::unique_ptr<ChildProcess>> SshCommandTransport::Run(const NodeTarget& target,
                                                               const std::string& command) const {
  Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Start(CommandLine(target, command), ChildProcess::Fate::kEndsWithUs);
  if (child) return child;
  return Fail(target, ExitCode::kUnavailable, "it cannot be started: " + child.error().message);
}

Error SshCommandTransport::Fail(const NodeTarget& target, ExitCode code,
                                const std::string& text) const {
  return Error{code, "node '" + target.name + "' (" +
                         (target.user.empty() ? "" : target.user + "@") + target.host + " by " +
                         std::filesystem::path(options_.command.front()).filename().string() +
                         "): " + text};
}

// Only ssh_config shows which nodes share a bastion.
std::string SshCommandTransport::GateName(const NodeTarget& target, Deadline deadline) const {
  const Result<SshConfig> config =
      ReadSshConfig(target, "", options_.command, Deadline::After(kConfigLimit).Earlier(deadline));
  if (!config) return target.host;
  if (!config->proxy_command.empty()) return config->proxy_command;
  return config->proxy_jump.empty() ? config->host_name : config->proxy_jump.front().host;
}

Result<std::unique_ptr<NodeLink>> SshCommandTransport::Connect(const NodeTarget& target,
                                                               Deadline deadline) {
  const std::string gate = GateName(target, deadline);
  const milliseconds limit = deadline.Left();
  std::optional<LoginGate::Turn> turn = LoginGate::Shared().Enter(gate, deadline);
  if (!turn) {
    return Fail(target, ExitCode::kUnavailable,
                "no login slot became free in time, because too many logins use one sshd or do not "
                "complete; raise --connect_timeout");
  }
  const Deadline by = Deadline::After(limit);
  // All that ssh does before the command runs is one step: only its output could show more.
  Begin(SshStep::kConnect);
  DSL_TRY_ASSIGN(std::unique_ptr<ChildLink> link, Start(target, by));
  if (!link) {
    Begin(SshStep::kCopyAgent);
    DSL_TRY(Install(target, by));
    Begin(SshStep::kStartAgent);
    DSL_TRY_ASSIGN(link, Start(target, by));
  }
  if (link) {
    Begin(SshStep::kRunning);
    return std::unique_ptr<NodeLink>(std::move(link));
  }
  return Fail(target, ExitCode::kUnavailable,
              "the agent is installed there and still cannot be started; check that its home "
              "folder is not mounted noexec");
}

Result<std::unique_ptr<ChildLink>> SshCommandTransport::Start(const NodeTarget& target,
                                                              Deadline deadline) const {
  for (int attempt = 0;; ++attempt) {
    const std::string nonce = MakeNonce();
    DSL_TRY_ASSIGN(std::unique_ptr<ChildProcess> child,
                   Run(target, StartCommand(agent_.build_id, role_, nonce)));
    auto link = std::make_unique<ChildLink>(std::move(child), target.host);
    HelloScanner scanner(nonce);
    const Result<void> hello = link->AwaitHello(scanner, deadline);
    if (hello && scanner.build_id() == agent_.build_id) return link;
    if (hello) {
      return Fail(target, ExitCode::kUnavailable,
                  "the agent there is of build " + scanner.build_id() + ", not " + agent_.build_id +
                      "; remove ~/.cache/dslaunch on the node and try again");
    }
    const std::optional<int> status = link->child().WaitEnd(Deadline::After(kLastOutputWait));
    const std::string said = link->StderrTail();
    if (!status) {
      link->child().SignalGroup(SIGKILL);
      return Fail(
          target,
          hello.error().code == ExitCode::kTimedOut ? ExitCode::kUnavailable : hello.error().code,
          "the agent " + hello.error().message + ItSaid(said, scanner.Skipped()) +
              "; check that the same ssh reaches it: " + options_.command.front() + " " +
              target.host + " true");
    }
    if (!HasFailedItself(*status)) {
      const int code = WEXITSTATUS(*status);
      if (code == kAgentMissing || code == 126 || code == 127) return std::unique_ptr<ChildLink>();
      return Fail(target, ExitCode::kUnavailable,
                  "the agent " + hello.error().message + " (" + EndInWords(*status) + ")" +
                      ItSaid(said, scanner.Skipped()) +
                      "; check that the account can run commands: " + options_.command.front() +
                      " " + target.host + " true");
    }
    const Deadline pause =
        Deadline::After(PauseAfter(attempt, kFirstLoginPause, kLongestLoginPause, RandomPart()));
    if (!IsTurnedAwayText(said) || attempt + 1 == kLoginAttempts ||
        pause.when() >= deadline.when()) {
      return Fail(target, IsRefusedText(said) ? ExitCode::kNoPermission : ExitCode::kUnavailable,
                  "it ended with " + EndInWords(*status) + ItSaid(said) +
                      "; it has no terminal to ask at: compare with " + options_.command.front() +
                      " " + target.host + " true");
    }
    std::this_thread::sleep_until(pause.when());
  }
}

Result<void> SshCommandTransport::Install(const NodeTarget& target, Deadline deadline) const {
  DSL_TRY_ASSIGN(const std::string sha256, Sha256OfFile(agent_.path));
  DSL_TRY_ASSIGN(std::unique_ptr<ChildProcess> child, Run(target, InstallCommand(agent_, sha256)));
  const UniqueFd stream = child->TakeStream();
  const Result<void> sent = SendFile(stream.get(), agent_.path, deadline);
  const std::optional<int> status = sent ? child->WaitEnd(deadline) : std::nullopt;
  if (status && *status == 0) return {};
  if (status) {
    return Fail(target, ExitCode::kUnavailable,
                "the agent could not be installed" + ItSaid(child->StderrTail()));
  }
  child->SignalGroup(SIGKILL);
  return Fail(
      target, ExitCode::kUnavailable,
      sent ? "the agent could not be copied in time; is the network slow?" : sent.error().message);
}

}  // namespace dslaunch
