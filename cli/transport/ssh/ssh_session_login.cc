// Implements how a session logs in: with keys in the order in which ssh offers them, then with
// questions to the user.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cli/transport/hello.h"
#include "cli/transport/ssh/ssh_agent.h"
#include "cli/transport/ssh/ssh_known_hosts.h"
#include "cli/transport/ssh/ssh_prompt.h"
#include "cli/transport/ssh/ssh_session.h"

namespace dslaunch {
namespace {

// Longest wait for an answer of the user. It equals sshd's LoginGraceTime, so a later answer would
// be useless.
constexpr milliseconds kAnswerWait{120'000};
constexpr size_t kMaxPromptBytes = 200;

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

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

// Reads the public key from FILE.pub, or from FILE if that is in OpenSSH's format or is a public
// key. Returns null if neither file contains a key.
SshKey ReadPublicKey(const std::string& path) {
  for (const std::string& file : {path + ".pub", path}) {
    ssh_key key = nullptr;
    if (::ssh_pki_import_pubkey_file(file.c_str(), &key) == SSH_OK) return SshKey(key);
  }
  return nullptr;
}

std::string BlobOf(const SshKey& key) {
  char* base64 = nullptr;
  if (!key || ::ssh_pki_export_pubkey_base64(key.get(), &base64) != SSH_OK) return "";
  std::string blob = DecodeBase64(base64);
  ::ssh_string_free_char(base64);
  return blob;
}

// Returns a hint that explains how to make the login succeed.
std::string LoginHint(int methods, bool gssapi_authentication) {
  const std::string key = "put a public key into the node's authorized_keys (ssh-copy-id)";
  if ((methods & SSH_AUTH_METHOD_GSSAPI_MIC) == 0) return key;
  const std::string ticket =
      gssapi_authentication
          ? "get a Kerberos ticket (kinit)"
          : "get a Kerberos ticket (kinit) and set GSSAPIAuthentication yes in ssh_config";
  return (methods & SSH_AUTH_METHOD_PUBLICKEY) != 0 ? key + ", or " + ticket : ticket;
}

// The argument of libssh's callback that asks for the passphrase of a key file.
struct PassphraseQuestion {
  const std::string& path;
  SshControl& control;
  bool may_ask;
  bool was_needed = false;
  bool was_asked = false;

  std::string what() const { return "passphrase of " + path; }

  static int Ask(const char*, char* buffer, size_t size, int, int, void* self) {
    auto& question = *static_cast<PassphraseQuestion*>(self);
    question.was_needed = true;
    if (!question.may_ask) return -1;
    question.was_asked = true;
    const GrantedWait wait(question.control, kAnswerWait);
    std::optional<std::string> answer =
        AskUserOnce(question.what(), "dslaunch: passphrase of the key " + question.path + ": ",
                    wait.deadline());
    if (!answer || answer->empty() || answer->size() >= size) return -1;
    std::memcpy(buffer, answer->c_str(), answer->size() + 1);
    ::explicit_bzero(answer->data(), answer->size());
    return 0;
  }
};

}  // namespace

// An attempt of `session` to log in.
class SshSession::LoginAttempt {
 public:
  explicit LoginAttempt(SshSession& session) : session_(session) {}

  Result<void> Run();

 private:
  Result<int> WithKeys();
  Result<int> WithAgent(const std::vector<std::string>& listed, std::vector<std::string>& offered);
  Result<int> WithCertificate(const std::string& path, const SshKey& certificate);
  Result<int> WithFile(const std::string& path, const SshKey& public_key);
  Result<int> ByAsking(int status);
  Result<int> AnswerQuestions();
  ssh_key ReadPrivateKey(const std::string& path);  // the caller owns the key
  Error Refusal(int status) const;
  const char* MethodOfSystemSsh(int methods) const;
  // Repeats `step` while it returns SSH_AUTH_AGAIN, and returns its last result.
  template <class Step>
  Result<int> Drive(Step step) {
    return session_.Drive(session_.By(), [&step] {
      const int status = step();
      return status == SSH_AUTH_AGAIN ? SSH_AGAIN : status;
    });
  }

  SshSession& session_;
  const SshConfig& config_ = session_.config_;
  const ssh_session ssh_ = session_.session_.get();
  std::vector<std::string> tried_;  // names of the keys that were offered to the server
  // Names of offered keys whose passphrase the user did not enter.
  std::vector<std::string> locked_;
};

Result<void> SshSession::Login() { return LoginAttempt(*this).Run(); }

Result<void> SshSession::LoginAttempt::Run() {
  DSL_TRY_ASSIGN(int status, WithKeys());
  if (status == SSH_AUTH_SUCCESS) return {};
  if (::ssh_is_connected(ssh_) != 0 && ::ssh_userauth_list(ssh_, nullptr) == 0) {
    // No key was offered, so the server has not listed its accepted methods yet; "none" requests
    // the list.
    DSL_TRY_ASSIGN(status, Drive([this] { return ::ssh_userauth_none(ssh_, nullptr); }));
    if (status == SSH_AUTH_SUCCESS) return {};
  }
  DSL_TRY_ASSIGN(status, ByAsking(status));
  if (status == SSH_AUTH_SUCCESS) return {};
  return Refusal(status);
}

Result<int> SshSession::LoginAttempt::WithKeys() {
  if (!config_.pubkey_authentication) return SSH_AUTH_DENIED;
  struct Identity {
    std::string path;
    SshKey public_key;
    std::string blob;
  };
  std::vector<Identity> identities;
  std::vector<std::string> listed;
  for (const std::string& path : config_.identity_files) {
    SshKey public_key = ReadPublicKey(path);
    std::string blob = BlobOf(public_key);
    if (!blob.empty()) listed.push_back(blob);
    identities.push_back({path, std::move(public_key), std::move(blob)});
  }
  std::vector<std::string> offered;
  DSL_TRY_ASSIGN(int status, WithAgent(listed, offered));
  for (const Identity& identity : identities) {
    if (status == SSH_AUTH_SUCCESS || ::ssh_is_connected(ssh_) == 0) break;
    ssh_key certificate = nullptr;
    if (::ssh_pki_import_cert_file((identity.path + "-cert.pub").c_str(), &certificate) != SSH_OK)
      continue;
    tried_.push_back(identity.path + "-cert.pub");
    DSL_TRY_ASSIGN(status, WithCertificate(identity.path, SshKey(certificate)));
  }
  for (const Identity& identity : identities) {
    if (status == SSH_AUTH_SUCCESS || status == SSH_AUTH_PARTIAL || ::ssh_is_connected(ssh_) == 0) {
      break;
    }
    std::error_code ignored;
    const bool was_offered =
        !identity.blob.empty() && std::ranges::find(offered, identity.blob) != offered.end();
    if (was_offered || !std::filesystem::exists(identity.path, ignored)) continue;
    tried_.push_back(identity.path);
    DSL_TRY_ASSIGN(status, WithFile(identity.path, identity.public_key));
  }
  return status;
}

Result<int> SshSession::LoginAttempt::WithAgent(const std::vector<std::string>& listed,
                                                std::vector<std::string>& offered) {
  UniqueFd agent = ConnectAgent(config_.agent_socket);
  if (!agent) return SSH_AUTH_DENIED;
  Result<std::vector<AgentKey>> keys = ListAgentKeys(agent.get(), session_.By());
  if (!keys) return session_.Fail(keys.error().code, keys.error().message);
  std::vector<AgentKey> chosen = ChooseAgentKeys(*std::move(keys), listed, config_.identities_only);
  if (chosen.empty()) return SSH_AUTH_DENIED;
  for (const AgentKey& key : chosen) {
    tried_.push_back(OneLine(key.comment, kMaxPromptBytes) + " (agent)");
    offered.push_back(key.blob);
  }
  AgentRelay relay(std::move(agent), std::move(chosen), session_.By());
  ::ssh_set_agent_socket(ssh_, relay.TakeFd().Release());  // libssh closes the descriptor
  return Drive([this] { return ::ssh_userauth_agent(ssh_, nullptr); });
}

// Logs in with the key file `path`. Asks the server whether it would accept the key before asking
// the user for the passphrase, so that the user is asked only for keys that can be used.
Result<int> SshSession::LoginAttempt::WithFile(const std::string& path, const SshKey& public_key) {
  if (public_key) {
    DSL_TRY_ASSIGN(const int status, Drive([this, &public_key] {
                     return ::ssh_userauth_try_publickey(ssh_, nullptr, public_key.get());
                   }));
    if (status != SSH_AUTH_SUCCESS) return status;
  }
  const SshKey key(ReadPrivateKey(path));
  if (!key) return SSH_AUTH_DENIED;
  return Drive([this, &key] { return ::ssh_userauth_publickey(ssh_, nullptr, key.get()); });
}

Result<int> SshSession::LoginAttempt::WithCertificate(const std::string& path,
                                                      const SshKey& certificate) {
  DSL_TRY_ASSIGN(const int status, Drive([this, &certificate] {
                   return ::ssh_userauth_try_publickey(ssh_, nullptr, certificate.get());
                 }));
  if (status != SSH_AUTH_SUCCESS) return status;
  const SshKey key(ReadPrivateKey(path));
  if (!key || ::ssh_pki_copy_cert_to_privkey(certificate.get(), key.get()) != SSH_OK)
    return SSH_AUTH_DENIED;
  return Drive([this, &key] { return ::ssh_userauth_publickey(ssh_, nullptr, key.get()); });
}

// Returns the private key; null if the file has no key or the user did not enter its passphrase.
ssh_key SshSession::LoginAttempt::ReadPrivateKey(const std::string& path) {
  PassphraseQuestion question{path, session_.control_, !config_.batch_mode && CanAskUser()};
  ssh_key key = nullptr;
  const int imported = ::ssh_pki_import_privkey_file(path.c_str(), nullptr,
                                                     &PassphraseQuestion::Ask, &question, &key);
  session_.asked_ = session_.asked_ || question.was_asked;
  if (imported == SSH_OK) return key;
  if (question.was_needed) locked_.push_back(path);
  if (question.was_asked) ForgetAnswer(question.what());
  return nullptr;
}

// Logs in by a question to the user. `status` is the result of the keys. Each node is asked one
// question; for a second try the user starts the command again.
Result<int> SshSession::LoginAttempt::ByAsking(int status) {
  const int methods = ::ssh_userauth_list(ssh_, nullptr);
  const bool by_questions = session_.options_.may_ask_again &&
                            config_.kbd_interactive_authentication &&
                            (methods & SSH_AUTH_METHOD_INTERACTIVE) != 0;
  const bool by_password =
      config_.password_authentication && (methods & SSH_AUTH_METHOD_PASSWORD) != 0;
  if (!(by_questions || by_password) || ::ssh_is_connected(ssh_) == 0 || config_.batch_mode ||
      !CanAskUser()) {
    return status;
  }
  if (by_questions) {
    DSL_TRY_ASSIGN(status, AnswerQuestions());
    if (session_.asked_ || status == SSH_AUTH_SUCCESS || !by_password) return status;
  }
  const std::string what = "password of " + session_.where_;
  std::optional<std::string> password;
  {
    const GrantedWait wait(session_.control_, kAnswerWait);
    session_.asked_ = true;
    password = AskUserOnce(
        what, "dslaunch: " + config_.user + "@" + session_.target_.host + "'s password: ",
        wait.deadline());
  }
  if (!password) return status;
  const Result<int> answer =
      Drive([&] { return ::ssh_userauth_password(ssh_, nullptr, password->c_str()); });
  ::explicit_bzero(password->data(), password->size());
  if (answer && *answer == SSH_AUTH_DENIED) ForgetAnswer(what);
  return answer;
}

Result<int> SshSession::LoginAttempt::AnswerQuestions() {
  while (true) {
    DSL_TRY_ASSIGN(const int status,
                   Drive([this] { return ::ssh_userauth_kbdint(ssh_, nullptr, nullptr); }));
    if (status != SSH_AUTH_INFO) return status;
    const int count = ::ssh_userauth_kbdint_getnprompts(ssh_);
    for (int i = 0; i < count; ++i) {
      char echo = 0;
      const char* prompt = ::ssh_userauth_kbdint_getprompt(ssh_, static_cast<unsigned>(i), &echo);
      const GrantedWait wait(session_.control_, kAnswerWait);
      session_.asked_ = true;
      std::optional<std::string> answer =
          AskUser("dslaunch: (" + config_.user + "@" + session_.target_.host + ") " +
                      OneLine(prompt != nullptr ? prompt : "", kMaxPromptBytes) + " ",
                  echo != 0, wait.deadline());
      if (!answer) return SSH_AUTH_DENIED;
      ::ssh_userauth_kbdint_setanswer(ssh_, static_cast<unsigned>(i), answer->c_str());
      ::explicit_bzero(answer->data(), answer->size());
    }
  }
}

// Returns a method that ssh supports, but libssh 0.10 or this client does not; null if the server
// offers no such method.
const char* SshSession::LoginAttempt::MethodOfSystemSsh(int methods) const {
  if (config_.gssapi_authentication && (methods & SSH_AUTH_METHOD_GSSAPI_MIC) != 0)
    return "the server accepts GSSAPI";
  if (config_.hostbased_authentication && (methods & SSH_AUTH_METHOD_HOSTBASED) != 0)
    return "the server accepts host-based logins";
  if ((methods & SSH_AUTH_METHOD_PUBLICKEY) == 0) return nullptr;
  std::error_code ignored;
  for (const std::string& path : config_.certificate_files) {
    if (std::filesystem::exists(path, ignored)) return "ssh_config has a CertificateFile";
  }
  for (const std::string& path : config_.identity_files) {
    if (std::filesystem::exists(path + "-cert.pub", ignored)) return "a key has a certificate";
    const SshKey key = ReadPublicKey(path);
    const ssh_keytypes_e type = key ? ::ssh_key_type(key.get()) : SSH_KEYTYPE_UNKNOWN;
    if (type == SSH_KEYTYPE_SK_ED25519 || type == SSH_KEYTYPE_SK_ECDSA)
      return "a key is on a security key";
  }
  return nullptr;
}

Error SshSession::LoginAttempt::Refusal(int status) const {
  const bool is_connected = ::ssh_is_connected(ssh_) != 0;
  if (status == SSH_AUTH_ERROR && !is_connected &&
      session_.LastError().find("authentication failures") == std::string::npos) {
    return session_.Fail(ExitCode::kUnavailable,
                         "the connection was lost during login: " + session_.LastError());
  }
  const int methods = ::ssh_userauth_list(ssh_, nullptr);
  if (const char* method = MethodOfSystemSsh(methods)) session_.NoteUnsupported(method);
  std::string text =
      "login refused; the server offers " + MethodNames(methods) + ", keys tried: " + Join(tried_);
  if (!locked_.empty()) {
    text += "; with a passphrase that was not given: " + Join(locked_) + ", load it with ssh-add";
  }
  constexpr int kByAsking = SSH_AUTH_METHOD_PASSWORD | SSH_AUTH_METHOD_INTERACTIVE;
  if (session_.asked_) {
    text += "; the password or passphrase that was typed is wrong";
  } else if ((methods & kByAsking) != 0 && (config_.batch_mode || !CanAskUser())) {
    text += config_.batch_mode ? "; BatchMode is on, so no password was asked for"
                               : "; there is no terminal to ask for a password";
  }
  if (!is_connected && !config_.identities_only && tried_.size() > 2) {
    text +=
        "; too many keys: name the right one with IdentityFile and IdentitiesOnly in ssh_config";
  }
  return session_.Fail(ExitCode::kNoPermission,
                       text + "; " + LoginHint(methods, config_.gssapi_authentication));
}

}  // namespace dslaunch
