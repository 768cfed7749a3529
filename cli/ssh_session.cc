#include "cli/ssh_session.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "cli/ssh_dial.h"
#include "cli/ssh_known_hosts.h"

namespace dslaunch {
namespace {

constexpr int kLoginAttempts = 3;
constexpr int kHandshakeAttempts = 6;

std::string TakeString(char* text) {
  std::string copy = text != nullptr ? text : "";
  ::ssh_string_free_char(text);
  return copy;
}

std::string GetOption(ssh_session session, ssh_options_e option) {
  char* value = nullptr;
  return ::ssh_options_get(session, option, &value) == SSH_OK ? TakeString(value) : "";
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// sshd refuses part of many logins at once before it says a word (MaxStartups); those come again at
// random times.
bool StopsWhileWaitingToRetry(int attempt, int stop_fd, Deadline deadline) {
  thread_local std::minstd_rand random(std::random_device{}());
  const int longest_ms = 100 << attempt;
  const milliseconds pause(std::uniform_int_distribution<int>(longest_ms / 2, longest_ms)(random));
  return WaitForFd(-1, 0, stop_fd, Deadline::After(pause).Earlier(deadline)) == Waited::kStopped ||
         deadline.Expired();
}

// libssh tells which keys it tries only to its log.
class KeysTried {
 public:
  KeysTried() {
    ::ssh_set_log_callback(&KeysTried::OnLog);
    ::ssh_set_log_userdata(this);
    ::ssh_set_log_level(SSH_LOG_DEBUG);
  }
  KeysTried(const KeysTried&) = delete;
  KeysTried& operator=(const KeysTried&) = delete;
  ~KeysTried() {
    ::ssh_set_log_level(SSH_LOG_NONE);
    ::ssh_set_log_userdata(nullptr);
  }

  std::string Join() const {
    std::string text;
    for (const std::string& key : keys_) text += (text.empty() ? "" : ", ") + key;
    return text;
  }

 private:
  static void OnLog(int, const char*, const char* text, void* self) {
    if (self != nullptr) static_cast<KeysTried*>(self)->Note(text);
  }

  void Note(const std::string& text) {
    constexpr std::string_view kAgent = "Trying identity ";
    constexpr std::string_view kFile = "Trying to authenticate with ";
    if (const size_t at = text.find(kAgent); at != text.npos) {
      keys_.push_back(text.substr(at + kAgent.size()) + " (agent)");
    } else if (const size_t file = text.find(kFile); file != text.npos) {
      keys_.push_back(text.substr(file + kFile.size()));
    } else if (!keys_.empty() &&
               text.find("Private key " + keys_.back() + " doesn't exist") != text.npos) {
      keys_.pop_back();
    }
  }

  std::vector<std::string> keys_;
};

std::string MethodNames(int methods) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SSH_AUTH_METHOD_PUBLICKEY, "publickey"},
      {SSH_AUTH_METHOD_PASSWORD, "password"},
      {SSH_AUTH_METHOD_INTERACTIVE, "keyboard-interactive"},
      {SSH_AUTH_METHOD_HOSTBASED, "hostbased"},
      {SSH_AUTH_METHOD_GSSAPI_MIC, "gssapi-with-mic"}};
  std::string text;
  for (const auto& [method, name] : kNames) {
    if ((methods & method) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text.empty() ? "none" : text;
}

struct HostKey {
  std::string fingerprint;  // SHA256:...
  std::string base64;       // the public key blob
};

HostKey ReadHostKey(ssh_session session) {
  ssh_key raw = nullptr;
  if (::ssh_get_server_publickey(session, &raw) != SSH_OK) return {};
  const std::unique_ptr<ssh_key_struct, FreeSshKey> key(raw);
  HostKey read;
  unsigned char* hash = nullptr;
  size_t size = 0;
  if (::ssh_get_publickey_hash(key.get(), SSH_PUBLICKEY_HASH_SHA256, &hash, &size) == SSH_OK) {
    const char* type = ::ssh_key_type_to_char(::ssh_key_type(key.get()));
    read.fingerprint =
        std::string(type != nullptr ? type : "") + " " +
        TakeString(::ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size));
    ::ssh_clean_pubkey_hash(&hash);
  }
  char* base64 = nullptr;
  if (::ssh_pki_export_pubkey_base64(key.get(), &base64) == SSH_OK)
    read.base64 = TakeString(base64);
  return read;
}

}  // namespace

const char* StepName(SshStep step) {
  switch (step) {
    case SshStep::kResolve:
      return "resolve";
    case SshStep::kConnect:
      return "connect";
    case SshStep::kHandshake:
      return "handshake";
    case SshStep::kHostKey:
      return "host key";
    case SshStep::kLogin:
      return "login";
    case SshStep::kStartAgent:
      return "start agent";
    case SshStep::kCopyAgent:
      return "copy agent";
    case SshStep::kRunning:
      break;
  }
  return "running";
}

std::string TimedOutAt(SshStep step) {
  switch (step) {
    case SshStep::kResolve:
      return "its host name was not resolved in time; check DNS";
    case SshStep::kConnect:
      return "the connection was not made in time; check that the node is up and that no firewall "
             "drops the port";
    case SshStep::kHandshake:
    case SshStep::kHostKey:
      return "it accepted the connection but did not complete the SSH handshake in time; check "
             "that an sshd "
             "listens on this port and that the node is not overloaded";
    case SshStep::kLogin:
      return "the login did not finish in time; check that ssh-agent answers (ssh-add -l) and that "
             "the node is "
             "not overloaded";
    case SshStep::kStartAgent:
      return "the agent did not start in time; check that the account's shell starts quickly there";
    case SshStep::kCopyAgent:
      return "the agent could not be copied in time; is the network slow, or the home folder's "
             "disk?";
    case SshStep::kRunning:
      break;
  }
  return "it did not answer in time";
}

template <class Step>
Result<int> SshSession::Drive(Deadline deadline, Step step) {
  while (true) {
    const int status = step();
    if (status != SSH_AGAIN) return status;
    DSL_TRY(WaitIo(deadline));
  }
}

Result<std::unique_ptr<SshSession>> SshSession::Open(const NodeTarget& target,
                                                     const SshOptions& options, Deadline deadline,
                                                     SshControl& control) {
  for (int attempt = 0;; ++attempt) {
    std::unique_ptr<SshSession> session(new SshSession(target, control));
    DSL_TRY(session->Configure(options));
    control.Begin(SshStep::kResolve);
    DSL_TRY(session->Reach(deadline));
    control.Begin(SshStep::kHandshake);
    if (Result<void> done = session->Handshake(deadline); !done) {
      const bool said_nothing = ::ssh_get_serverbanner(session->session_.get()) == nullptr;
      if (!said_nothing || session->proxy_ || attempt + 1 >= kHandshakeAttempts ||
          deadline.Expired() || StopsWhileWaitingToRetry(attempt, control.stop_fd, deadline)) {
        return done.error();
      }
      continue;
    }
    control.Begin(SshStep::kHostKey);
    DSL_TRY(session->CheckHostKey());
    control.Begin(SshStep::kLogin);
    DSL_TRY(session->Login(deadline));
    return session;
  }
}

Result<void> SshSession::Configure(const SshOptions& options) {
  session_.reset(::ssh_new());
  event_.reset(::ssh_event_new());
  if (!session_ || !event_) return Error{ExitCode::kInternal, "libssh: out of memory"};
  const ssh_session session = session_.get();
  ::ssh_set_blocking(session, 0);
  ::ssh_options_set(session, SSH_OPTIONS_HOST, target_.host.c_str());
  where_ = target_.host;
  if (!target_.user.empty()) ::ssh_options_set(session, SSH_OPTIONS_USER, target_.user.c_str());
  if (::ssh_options_parse_config(
          session, options.config_file.empty() ? nullptr : options.config_file.c_str()) != 0) {
    return Fail(ExitCode::kBadInput, "the ssh configuration cannot be read: " + LastError());
  }
  ::ssh_set_log_level(SSH_LOG_NONE);  // LogLevel in the configuration would write to the terminal
  // Whatever the configuration says: libssh calls an unknown key known when this is off.
  const int strict = 1;
  ::ssh_options_set(session, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict);
  if (target_.port > 0) ::ssh_options_set(session, SSH_OPTIONS_PORT, &target_.port);
  if (GetOption(session, SSH_OPTIONS_USER).empty())
    ::ssh_options_set(session, SSH_OPTIONS_USER, nullptr);

  host_ = GetOption(session, SSH_OPTIONS_HOST);
  unsigned port = 22;
  ::ssh_options_get_port(session, &port);
  port_ = static_cast<int>(port == 0 ? 22 : port);
  where_ = GetOption(session, SSH_OPTIONS_USER) + "@" + host_ + " port " + std::to_string(port_);
  proxy_command_ = GetOption(session, SSH_OPTIONS_PROXYCOMMAND);
  return {};
}

Result<void> SshSession::Reach(Deadline deadline) {
  if (!proxy_command_.empty()) {
    const ProxyTokens tokens{host_, port_, GetOption(session_.get(), SSH_OPTIONS_USER),
                             target_.host};
    const Result<std::string> command = ExpandProxyCommand(proxy_command_, tokens);
    if (!command) return Fail(command.error().code, command.error().message);
    Result<std::unique_ptr<SshProxy>> proxy = SshProxy::Start(*command, socket_);
    if (!proxy) return Fail(proxy.error().code, proxy.error().message);
    proxy_ = std::move(*proxy);
    address_ = host_;
    return {};
  }
  Result<Dialed> dialed =
      Dial(host_, port_, deadline, control_.stop_fd, [this] { control_.Begin(SshStep::kConnect); });
  if (!dialed) return Fail(dialed.error().code, dialed.error().message);
  socket_ = std::move(dialed->socket);
  address_ = std::move(dialed->address);
  return {};
}

Result<void> SshSession::Handshake(Deadline deadline) {
  const int fd = ::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0);  // libssh closes it, also on errors
  ::ssh_options_set(session_.get(), SSH_OPTIONS_FD, &fd);
  Result<int> status = Drive(deadline, [this] {
    const int connected = ::ssh_connect(session_.get());
    // libssh makes it blocking once connected; a stalled node would then block this thread in
    // send().
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    return connected;
  });
  if (!status) return status.error();
  if (*status != SSH_OK) {
    return HandshakeError();
  }
  if (::ssh_event_add_session(event_.get(), session_.get()) != SSH_OK) {
    return Fail(ExitCode::kInternal, "libssh: cannot watch the session");
  }
  return {};
}

Error SshSession::HandshakeError() const {
  std::string text = "the SSH handshake failed: " + LastError();
  if (proxy_) {
    const std::string said = proxy_->Said();
    text += "; check ssh_config's ProxyCommand or ProxyJump" +
            (said.empty() ? "" : ", which said: " + said);
  } else if (::ssh_get_serverbanner(session_.get()) == nullptr) {
    text +=
        "; it closed the connection before it spoke SSH: check that an sshd listens on this port, "
        "its MaxStartups and "
        "whether it blocks this address";
  } else {
    text += "; compare with ssh -v";
  }
  return Fail(ExitCode::kUnavailable, text);
}

Result<void> SshSession::CheckHostKey() {
  const HostKey key = ReadHostKey(session_.get());
  const std::string known = GetOption(session_.get(), SSH_OPTIONS_KNOWNHOSTS);
  const std::string global = GetOption(session_.get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS);
  const std::vector<std::string> names = KnownHostsNames(host_, port_);
  const std::string& listed_name = port_ == 22 ? names[1] : names[0];
  if (key.base64.empty())
    return Fail(ExitCode::kNoPermission, "its host key cannot be read: " + LastError());

  // The second name of each is OpenSSH's default too.
  for (const std::string& path : {known, known + "2", global, global + "2"}) {
    if (const int line = FindRevocation(ReadWholeFile(path), names, key.base64); line > 0) {
      return Fail(ExitCode::kNoPermission,
                  "its host key " + key.fingerprint + " is revoked by " + path + ":" +
                      std::to_string(line) +
                      "; do not use this node until its administrator has given it a new key");
    }
  }
  switch (::ssh_session_is_known_server(session_.get())) {
    case SSH_KNOWN_HOSTS_OK:
      return {};
    case SSH_KNOWN_HOSTS_CHANGED:
      return Fail(ExitCode::kNoPermission, "its host key has CHANGED to " + key.fingerprint +
                                               ": someone may be listening in, or it was installed "
                                               "anew; once its administrator confirms this "
                                               "fingerprint, run ssh-keygen -f " +
                                               known + " -R '" + listed_name +
                                               "' and connect once with ssh");
    case SSH_KNOWN_HOSTS_OTHER:
      return Fail(ExitCode::kNoPermission,
                  "known_hosts lists it with a key of another type than its " + key.fingerprint +
                      ", which may mean that someone is listening in; once its administrator "
                      "confirms this fingerprint, add "
                      "the key to " +
                      known + " with ssh-keyscan");
    case SSH_KNOWN_HOSTS_NOT_FOUND:
    case SSH_KNOWN_HOSTS_UNKNOWN:
      return Fail(ExitCode::kNoPermission,
                  "its host key " + key.fingerprint + " is not in " + known +
                      "; connect to it once with ssh, or add the key with ssh-keyscan -p " +
                      std::to_string(port_) + " " + host_ + ", and compare the fingerprint");
    case SSH_KNOWN_HOSTS_ERROR:
      break;
  }
  return Fail(ExitCode::kNoPermission, "its host key cannot be checked: " + LastError());
}

Result<void> SshSession::Login(Deadline deadline) {
  for (int attempt = 0;; ++attempt) {
    const KeysTried keys;
    DSL_TRY_ASSIGN(const int status, Drive(deadline, [this] {
                     const int answer =
                         ::ssh_userauth_publickey_auto(session_.get(), nullptr, nullptr);
                     return answer == SSH_AUTH_AGAIN ? SSH_AGAIN : answer;
                   }));
    if (status == SSH_AUTH_SUCCESS) return {};
    // A server that refuses lists its methods. Without that it was not asked at all: libssh failed
    // on this side, as it does when it reads a public key file that the login to another node is
    // just writing.
    const bool was_asked = ::ssh_userauth_list(session_.get(), nullptr) != 0;
    const bool may_retry = !was_asked && ::ssh_is_connected(session_.get()) != 0;
    if (!may_retry || attempt + 1 >= kLoginAttempts ||
        StopsWhileWaitingToRetry(attempt, control_.stop_fd, deadline)) {
      return LoginError(status, keys.Join());
    }
  }
}

Error SshSession::LoginError(int status, const std::string& keys_tried) const {
  if (status == SSH_AUTH_ERROR && ::ssh_is_connected(session_.get()) == 0 &&
      LastError().find("authentication failures") == std::string::npos) {
    return Fail(ExitCode::kUnavailable, "the connection was lost during login: " + LastError());
  }
  const int listed = ::ssh_userauth_list(session_.get(), nullptr);
  if (listed == 0) {
    return Fail(ExitCode::kNoPermission,
                "login failed on this side, before the server was asked: " + LastError() +
                    "; keys tried: " + (keys_tried.empty() ? "none" : keys_tried) +
                    "; check that ssh can read these files");
  }
  const std::string methods = MethodNames(listed);
  return Fail(
      ExitCode::kNoPermission,
      "login refused; the server offers " + methods +
          ", keys tried: " + (keys_tried.empty() ? "none" : keys_tried) +
          "; dslaunch logs in with keys only: put a public key into the node's authorized_keys "
          "(ssh-copy-id) and, if the key has a passphrase, load it with ssh-add");
}

Result<std::unique_ptr<SshStream>> SshSession::Exec(const std::string& command,
                                                    TailBuffer& stderr_tail, Deadline deadline) {
  auto stream = std::make_unique<SshStream>(session_.get(), stderr_tail);
  const ssh_channel channel = stream->channel();
  if (channel == nullptr) return Fail(ExitCode::kInternal, "libssh: " + LastError());
  DSL_TRY_ASSIGN(const int opened,
                 Drive(deadline, [channel] { return ::ssh_channel_open_session(channel); }));
  if (opened != SSH_OK) {
    return Fail(ExitCode::kUnavailable,
                "no session can be opened: " + LastError() + "; check sshd's MaxSessions there");
  }
  DSL_TRY_ASSIGN(const int started, Drive(deadline, [channel, &command] {
                   return ::ssh_channel_request_exec(channel, command.c_str());
                 }));
  if (started != SSH_OK) {
    return Fail(ExitCode::kUnavailable, "the account may not run commands: " + LastError() +
                                            "; check its shell and sshd_config there");
  }
  return stream;
}

bool SshSession::Process() {
  return ::ssh_event_dopoll(event_.get(), 0) != SSH_ERROR &&
         ::ssh_is_connected(session_.get()) != 0;
}

Result<void> SshSession::WaitIo(Deadline deadline) {
  // Before it runs a command sshd holds each small packet back until the last one was acknowledged,
  // which the kernel would do 40 ms late. The option does not last.
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
  const int flags = ::ssh_get_poll_flags(session_.get());
  const short events =
      static_cast<short>(POLLIN | ((flags & SSH_WRITE_PENDING) != 0 ? POLLOUT : 0));
  switch (WaitForFd(socket_.get(), events, control_.stop_fd, deadline)) {
    case Waited::kReady:
      return {};
    case Waited::kStopped:
      return Fail(ExitCode::kUnavailable, "the attempt was given up");
    case Waited::kDeadline:
      break;
  }
  return Fail(ExitCode::kUnavailable, TimedOutAt(control_.step));
}

Error SshSession::Fail(ExitCode code, const std::string& text) const {
  return Error{code, "node '" + target_.name + "' (" + where_ + "): " + text};
}

}  // namespace dslaunch
