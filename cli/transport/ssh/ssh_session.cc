#include "cli/transport/ssh/ssh_session.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "base/backoff.h"
#include "cli/transport/hello.h"
#include "cli/transport/login_gate.h"
#include "cli/transport/ssh/ssh_dial.h"

namespace dslaunch {
namespace {

constexpr milliseconds kSessionEnds{3000};
constexpr milliseconds kSessionPoll{50};

std::string PortText(int port) { return " port " + std::to_string(port); }

}  // namespace

std::string SubjectOf(const NodeTarget& target, const SshOptions& options) {
  return options.leads_to.empty() ? "node '" + target.name + "'"
                                  : "host '" + target.name + "' on the way";
}

SshSession::SshSession(const NodeTarget& target, const SshOptions& options, const SshConfig& config,
                       Deadline deadline, SshControl& control)
    : target_(target),
      options_(options),
      config_(config),
      deadline_(deadline),
      control_(control),
      where_(config.user + "@" + config.host_name + PortText(config.port)) {}

SshSession::~SshSession() = default;

Deadline SshSession::By() const {
  return Deadline::At(deadline_.when() + milliseconds(control_.granted_ms));
}

Deadline SshSession::ConnectBy() const {
  if (!config_.connect_timeout) return By();
  return Deadline::After(*config_.connect_timeout).Earlier(By());
}

Result<std::unique_ptr<SshSession>> SshSession::Open(const NodeTarget& target,
                                                     const SshOptions& options, Deadline deadline,
                                                     SshControl& control) {
  control.Begin(ConnectStep::kResolve);
  Result<SshConfig> config = options.configs->Read(target, options.config_file, {}, deadline);
  if (!config) {
    return Error{config.error().code,
                 SubjectOf(target, options) + " (" + target.host + "): " + config.error().message};
  }
  if (options.proxy_jump) {
    config->proxy_jump = *options.proxy_jump;
    config->proxy_command.clear();
  }
  for (int attempt = 0;; ++attempt) {
    std::unique_ptr<SshSession> session(
        new SshSession(target, options, *config, deadline, control));
    const Result<void> established = session->Establish();
    if (established) {
      session->config_ = {};  // frees some kilobytes for the life of the connection
      return session;
    }
    if (!session->WasTurnedAway() || attempt + 1 == kLoginAttempts || session->By().Expired())
      return established.error();
    LoginGate::Shared().OnTurnedAway(session->GateName());
    const Deadline by = session->By();
    session.reset();
    const Deadline pause =
        Deadline::After(PauseAfter(attempt, kFirstLoginPause, kLongestLoginPause, RandomPart()));
    if (WaitForFd(-1, 0, control.stop_fd, pause.Earlier(by)) == Waited::kStopped)
      return established.error();
  }
}

// A login that waits for its turn holds no other turn, which avoids a deadlock. A host on the way
// holds a turn only while its own login is in progress.
Result<void> SshSession::Establish() {
  DSL_TRY(Configure());
  control_.Begin(ConnectStep::kConnect);
  if (!config_.proxy_jump.empty()) DSL_TRY(Reach());
  const std::optional<LoginGate::Turn> turn = [this] {
    const GrantedWait wait(control_, deadline_.Left());
    return LoginGate::Shared().Enter(GateName(), wait.deadline());
  }();
  if (!turn) {
    return Fail(ExitCode::kUnavailable,
                "no login slot became free in time, because too many logins use one sshd or do not "
                "complete; raise --connect_timeout");
  }
  if (config_.proxy_jump.empty()) DSL_TRY(Reach());
  control_.Begin(ConnectStep::kHandshake);
  DSL_TRY(Handshake());
  control_.Begin(ConnectStep::kHostKey);
  DSL_TRY(CheckHostKey());
  control_.Begin(ConnectStep::kLogin);
  return Login();
}

std::string SshSession::GateName() const {
  return config_.proxy_command.empty() ? config_.host_name + PortText(config_.port)
                                       : config_.proxy_command;
}

Result<void> SshSession::Configure() {
  session_.reset(::ssh_new());
  event_.reset(::ssh_event_new());
  if (!session_ || !event_) return Error{ExitCode::kInternal, "libssh: out of memory"};
  const ssh_session session = session_.get();
  ::ssh_set_blocking(session, 0);
  const bool process_config = false;
  ::ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &process_config);
  // dslaunch itself makes the connection, so libssh uses this host name only to look it up in
  // known_hosts.
  const bool has_alias = !config_.host_key_alias.empty();
  const int port = has_alias ? 22 : config_.port;
  ::ssh_options_set(session, SSH_OPTIONS_HOST,
                    (has_alias ? config_.host_key_alias : config_.host_name).c_str());
  ::ssh_options_set(session, SSH_OPTIONS_PORT, &port);
  ::ssh_options_set(session, SSH_OPTIONS_USER, config_.user.c_str());
  // libssh reports an unknown key as known if strict checking is off, so strict checking is always
  // on.
  const int strict = 1;
  ::ssh_options_set(session, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict);
  // libssh prefers the types of host keys that the known_hosts files list, so both files are set.
  if (!config_.user_known_hosts.empty())
    ::ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, config_.user_known_hosts.front().c_str());
  if (!config_.global_known_hosts.empty()) {
    ::ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS,
                      config_.global_known_hosts.front().c_str());
  }
  ::ssh_options_set(session, SSH_OPTIONS_COMPRESSION, config_.compression ? "yes" : "no");
  if (config_.rekey_bytes > 0)
    ::ssh_options_set(session, SSH_OPTIONS_REKEY_DATA, &config_.rekey_bytes);
  if (config_.rekey_seconds > 0)
    ::ssh_options_set(session, SSH_OPTIONS_REKEY_TIME, &config_.rekey_seconds);
  const struct {
    const char* name;
    const std::string& value;
    std::vector<ssh_options_e> options;
  } algorithms[] = {
      {"Ciphers", config_.ciphers, {SSH_OPTIONS_CIPHERS_C_S, SSH_OPTIONS_CIPHERS_S_C}},
      {"MACs", config_.macs, {SSH_OPTIONS_HMAC_C_S, SSH_OPTIONS_HMAC_S_C}},
      {"KexAlgorithms", config_.kex_algorithms, {SSH_OPTIONS_KEY_EXCHANGE}},
      {"HostKeyAlgorithms", config_.host_key_algorithms, {SSH_OPTIONS_HOSTKEYS}}};
  for (const auto& algorithm : algorithms) {
    if (algorithm.value.empty()) continue;
    for (const ssh_options_e option : algorithm.options) {
      if (::ssh_options_set(session, option, algorithm.value.c_str()) == 0) continue;
      return Fail(ExitCode::kBadInput, std::string("dslaunch supports none of ssh_config's ") +
                                           algorithm.name +
                                           "; change it, or use the system's "
                                           "ssh with --ssh_command ssh");
    }
  }
  return {};
}

Result<void> SshSession::Reach() {
  if (!config_.proxy_jump.empty()) return ReachThroughHops();
  if (!config_.proxy_command.empty()) {
    const ProxyTokens tokens{config_.host_name, config_.port, config_.user, target_.host};
    const Result<std::string> command = ExpandProxyCommand(config_.proxy_command, tokens);
    if (!command) return Fail(command.error().code, command.error().message);
    Result<std::unique_ptr<SshProxy>> proxy = SshProxy::Start(*command, socket_);
    if (!proxy) return Fail(proxy.error().code, proxy.error().message);
    proxy_ = std::move(*proxy);
    address_ = config_.host_name;
    return {};
  }
  control_.Begin(ConnectStep::kResolve);
  const Result<AddressList> addresses =
      Resolve(config_.host_name, config_.port, config_.address_family);
  if (!addresses) return Fail(addresses.error().code, addresses.error().message);
  control_.Begin(ConnectStep::kConnect);
  Result<Dialed> dialed = Dial(*addresses, config_.port, ConnectBy(), control_.stop_fd);
  if (!dialed) return Fail(dialed.error().code, dialed.error().message);
  socket_ = std::move(dialed->socket);
  address_ = std::move(dialed->address);
  return {};
}

Result<void> SshSession::Handshake() {
  // Pass a duplicate, because libssh closes its descriptor, also on errors.
  const int fd = ::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0);
  ::ssh_options_set(session_.get(), SSH_OPTIONS_FD, &fd);
  Result<int> status = Drive(ConnectBy(), [this] {
    const int connected = ::ssh_connect(session_.get());
    // libssh makes the socket blocking once it is connected, so it is made non-blocking again.
    // Otherwise a stalled node would block this thread in send().
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    return connected;
  });
  if (!status) return status.error();
  if (*status != SSH_OK) return HandshakeError();
  if (::ssh_event_add_session(event_.get(), session_.get()) != SSH_OK) {
    return Fail(ExitCode::kInternal, "libssh: cannot watch the session");
  }
  return {};
}

Error SshSession::HandshakeError() const {
  std::string text = "the SSH handshake failed: " + LastError();
  if (proxy_) {
    const std::string printed = OneLine(proxy_->StderrTail(), 512);
    text += "; check ssh_config's ProxyCommand" +
            (printed.empty() ? "" : ", which printed: " + printed);
  } else if (WasTurnedAway()) {
    text +=
        "; it closed the connection before authentication: check that an sshd listens on "
        "this port, its MaxStartups and whether it blocks this address";
  } else {
    text += "; compare with ssh -v, or use the system's ssh with --ssh_command ssh";
  }
  return Fail(ExitCode::kUnavailable, text);
}

// Returns whether sshd closed the connection because of overload, not because it refused a login.
bool SshSession::WasTurnedAway() const {
  if (control_.step == ConnectStep::kLogin)  // the user may have answered after LoginGraceTime
    return asked_ && ::ssh_is_connected(session_.get()) == 0;
  if (control_.step != ConnectStep::kHandshake) return false;
  if (proxy_) return IsTurnedAwayText(proxy_->StderrTail());
  const std::string error = LastError();
  return error.find("Socket error") != std::string::npos ||
         error.find("MaxStartups") != std::string::npos ||
         (::ssh_get_serverbanner(session_.get()) == nullptr &&
          ::ssh_is_connected(session_.get()) == 0);
}

Result<std::unique_ptr<SshStream>> SshSession::Exec(const std::string& command,
                                                    TailBuffer& stderr_tail, Deadline deadline) {
  // With MaxSessions 1, sshd allows one session at a time and may still count a session that has
  // ended, so opening a session is retried.
  const Deadline last_try = Deadline::After(kSessionEnds).Earlier(deadline);
  std::unique_ptr<SshStream> stream;
  while (!stream) {
    auto tried = std::make_unique<SshStream>(session_.get(), stderr_tail);
    if (tried->channel() == nullptr) return Fail(ExitCode::kInternal, "libssh: " + LastError());
    DSL_TRY_ASSIGN(const int opened, Drive(deadline, [&tried] {
                     return ::ssh_channel_open_session(tried->channel());
                   }));
    if (opened == SSH_OK) {
      stream = std::move(tried);
    } else if (last_try.Expired() || !Process()) {
      return Fail(ExitCode::kUnavailable,
                  "no session can be opened: " + LastError() + "; check sshd's MaxSessions there");
    } else {
      (void)WaitIo(Deadline::After(kSessionPoll));
    }
  }
  const ssh_channel channel = stream->channel();
  DSL_TRY_ASSIGN(const int started, Drive(deadline, [channel, &command] {
                   return ::ssh_channel_request_exec(channel, command.c_str());
                 }));
  if (started != SSH_OK) {
    return Fail(ExitCode::kUnavailable, "the account may not run commands: " + LastError() +
                                            "; check its shell and sshd_config there");
  }
  return stream;
}

Result<std::unique_ptr<SshStream>> SshSession::Forward(const std::string& host, int port,
                                                       TailBuffer& stderr_tail, Deadline deadline) {
  auto stream = std::make_unique<SshStream>(session_.get(), stderr_tail);
  const ssh_channel channel = stream->channel();
  if (channel == nullptr) return Fail(ExitCode::kInternal, "libssh: " + LastError());
  DSL_TRY_ASSIGN(const int opened, Drive(deadline, [channel, &host, port] {
                   return ::ssh_channel_open_forward(channel, host.c_str(), port, "127.0.0.1", 0);
                 }));
  if (opened == SSH_OK) return stream;
  return Fail(ExitCode::kUnavailable,
              "it cannot connect to " + host + PortText(port) + ": " + LastError() +
                  "; check that this is its name and port as seen from there, that it is up, and "
                  "that AllowTcpForwarding is not off in sshd_config there");
}

bool SshSession::Process() {
  return ::ssh_event_dopoll(event_.get(), 0) != SSH_ERROR &&
         ::ssh_is_connected(session_.get()) != 0;
}

Result<void> SshSession::WaitIo(Deadline deadline) {
  // Before sshd runs a command, it delays each small packet until the previous one is acknowledged,
  // which the kernel does up to 40 ms late. Quick acknowledgement avoids this. The kernel resets
  // the option, so it is set before each wait.
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
  const int flags = ::ssh_get_poll_flags(session_.get());
  const short events =
      static_cast<short>(POLLIN | ((flags & SSH_WRITE_PENDING) != 0 ? POLLOUT : 0));
  switch (WaitForFd(socket_.get(), events, control_.stop_fd, deadline)) {
    case Waited::kReady:
      return {};
    case Waited::kStopped:
      return Fail(ExitCode::kUnavailable, "the attempt was cancelled");
    case Waited::kDeadline:
      break;
  }
  return Fail(ExitCode::kUnavailable, TimedOutAt(control_.step));
}

Error SshSession::Fail(ExitCode code, const std::string& text) const {
  return Error{code, SubjectOf(target_, options_) + " (" + where_ + "): " + text};
}

}  // namespace dslaunch
