// Implements how a session checks the host key of the server, which libssh does not do by itself.
#include <algorithm>
#include <cerrno>

#include "base/errno_text.h"
#include "base/mutex.h"
#include "base/os/proc_text.h"
#include "cli/transport/ssh/ssh_known_hosts.h"
#include "cli/transport/ssh/ssh_session.h"

namespace dslaunch {
namespace {

std::string CopyAndFree(char* text) {
  std::string copy = text != nullptr ? text : "";
  ::ssh_string_free_char(text);
  return copy;
}

struct HostKey {
  std::string fingerprint;  // fingerprint for messages, in the form SHA256:...
  std::string base64;       // public key blob in base64
};

HostKey ReadHostKey(ssh_session session) {
  ssh_key raw = nullptr;
  if (::ssh_get_server_publickey(session, &raw) != SSH_OK) return {};
  const SshKey key(raw);
  HostKey read;
  unsigned char* hash = nullptr;
  size_t size = 0;
  if (::ssh_get_publickey_hash(key.get(), SSH_PUBLICKEY_HASH_SHA256, &hash, &size) == SSH_OK) {
    const char* type = ::ssh_key_type_to_char(::ssh_key_type(key.get()));
    read.fingerprint =
        std::string(type != nullptr ? type : "") + " " +
        CopyAndFree(::ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size));
    ::ssh_clean_pubkey_hash(&hash);
  }
  char* base64 = nullptr;
  if (::ssh_pki_export_pubkey_base64(key.get(), &base64) == SSH_OK)
    read.base64 = CopyAndFree(base64);
  return read;
}

// Looks the server up in one known_hosts file. Each file is looked up separately, because libssh
// accepts two files and ssh any number.
ssh_known_hosts_e LookUp(ssh_session session, const std::string& path) {
  ::ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, path.c_str());
  ::ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, path.c_str());
  return ::ssh_session_is_known_server(session);
}

// Looks the server up in all files and combines the answers as ssh does: one file that lists the
// key is enough, and a different listed key takes precedence over no key.
ssh_known_hosts_e LookUp(ssh_session session, const std::vector<std::string>& paths) {
  constexpr ssh_known_hosts_e kOrder[] = {SSH_KNOWN_HOSTS_OK, SSH_KNOWN_HOSTS_CHANGED,
                                          SSH_KNOWN_HOSTS_OTHER, SSH_KNOWN_HOSTS_ERROR,
                                          SSH_KNOWN_HOSTS_UNKNOWN};
  std::vector<ssh_known_hosts_e> answers;
  for (const std::string& path : paths) answers.push_back(LookUp(session, path));
  for (const ssh_known_hosts_e answer : kOrder) {
    if (std::ranges::find(answers, answer) != answers.end()) return answer;
  }
  return SSH_KNOWN_HOSTS_NOT_FOUND;
}

// Returns the file that a hint names: the first of `paths`, or "known_hosts" if `paths` is empty.
std::string FirstOf(const std::vector<std::string>& paths) {
  return paths.empty() ? "known_hosts" : paths.front();
}

}  // namespace

Result<void> SshSession::CheckHostKey() {
  const ssh_session session = session_.get();
  const HostKey key = ReadHostKey(session);
  if (key.base64.empty())
    return Fail(ExitCode::kNoPermission, "its host key cannot be read: " + LastError());
  const bool has_alias = !config_.host_key_alias.empty();
  const int port = has_alias ? 22 : config_.port;
  const std::vector<std::string> names =
      KnownHostsNames(has_alias ? config_.host_key_alias : config_.host_name, port);
  const std::string& listed_name = port == 22 ? names[1] : names[0];
  std::vector<std::string> paths = config_.user_known_hosts;
  paths.insert(paths.end(), config_.global_known_hosts.begin(), config_.global_known_hosts.end());
  const std::string known = FirstOf(paths);
  for (const std::string& path : paths) {
    if (const int line = FindRevocation(ReadWhole(path).value_or(""), names, key.base64);
        line > 0) {
      return Fail(ExitCode::kNoPermission,
                  "its host key " + key.fingerprint + " is revoked by " + path + ":" +
                      std::to_string(line) +
                      "; do not use this node until its administrator has given it a new key");
    }
  }
  switch (LookUp(session, paths)) {
    case SSH_KNOWN_HOSTS_OK:
      return {};
    case SSH_KNOWN_HOSTS_CHANGED:
      return Fail(ExitCode::kNoPermission, "its host key has CHANGED to " + key.fingerprint +
                                               ": someone may be listening in, or the node was "
                                               "reinstalled; once its administrator confirms this "
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
      break;
    case SSH_KNOWN_HOSTS_ERROR:
      return Fail(ExitCode::kNoPermission, "its host key cannot be checked: " + LastError());
  }
  return CheckUnlistedHostKey(key.fingerprint, names, paths);
}

Result<void> SshSession::CheckUnlistedHostKey(const std::string& fingerprint,
                                              const std::vector<std::string>& names,
                                              const std::vector<std::string>& paths) {
  std::string unreadable;  // name of the first file that exists and cannot be read, with the cause
  for (const std::string& path : paths) {
    const std::optional<std::string> text = ReadWhole(path);
    if (!text && errno != ENOENT && unreadable.empty())
      unreadable = path + " cannot be read: " + ErrnoText(errno);
    if (!text || !HasAuthority(*text, names)) continue;
    NoteUnsupported("known_hosts trusts a @cert-authority for its host key");
    return Fail(ExitCode::kNoPermission,
                "its host key " + fingerprint + " is certified by a @cert-authority of " + path +
                    " at most, which dslaunch's own client does not check");
  }
  if (config_.strict_host_key_checking == HostKeyPolicy::kAcceptNew)
    return AcceptNewHostKey(fingerprint);
  if (!unreadable.empty()) {
    return Fail(ExitCode::kNoPermission,
                "its host key " + fingerprint + " cannot be looked up: " + unreadable +
                    "; mend it, or name another file by UserKnownHostsFile in ssh_config");
  }
  const bool wants_any = config_.strict_host_key_checking == HostKeyPolicy::kNo;
  return Fail(ExitCode::kNoPermission,
              "its host key " + fingerprint + " is not in " + FirstOf(paths) +
                  (wants_any ? "; `StrictHostKeyChecking no` is not honored, because it accepts "
                               "changed keys too: write accept-new in ssh_config, "
                             : "; connect to it once with ssh, ") +
                  "or add the key with ssh-keyscan -p " + std::to_string(config_.port) + " " +
                  config_.host_name + ", and compare the fingerprint");
}

// Adds the host's key to the user's known_hosts. Calls are serialized, so that the key of a bastion
// that many nodes use is written once.
Result<void> SshSession::AcceptNewHostKey(const std::string& fingerprint) {
  static Mutex* const mutex = new Mutex;
  const MutexLock lock(*mutex);
  if (config_.user_known_hosts.empty()) return {};
  const std::string& path = config_.user_known_hosts.front();
  if (LookUp(session_.get(), path) == SSH_KNOWN_HOSTS_OK) return {};
  ::ssh_options_set(session_.get(), SSH_OPTIONS_KNOWNHOSTS, path.c_str());
  if (::ssh_session_update_known_hosts(session_.get()) == SSH_OK) return {};
  return Fail(ExitCode::kNoPermission, "its host key " + fingerprint + " is new and cannot be " +
                                           "written to " + path + ": " + LastError());
}

}  // namespace dslaunch
