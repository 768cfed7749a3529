// What ssh_config says about a node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// One host of a ProxyJump.
struct SshHop {
  std::string user;  // empty: as ssh_config says for it
  std::string host;
  int port = 0;  // 0: as ssh_config says for it

  bool operator==(const SshHop&) const = default;
};

// StrictHostKeyChecking. dslaunch never asks: kAsk refuses an unknown key as kYes does.
enum class HostKeyPolicy { kAsk, kYes, kAcceptNew, kNo };

// The names are ssh_config's.
struct SshConfig {
  std::string host_name;
  int port = 22;
  std::string user;
  std::vector<std::string> identity_files;
  bool identities_only = false;
  std::string agent_socket;  // IdentityAgent or SSH_AUTH_SOCK; empty: no agent
  std::vector<SshHop> proxy_jump;
  std::string proxy_command;  // with its tokens; empty: none
  HostKeyPolicy strict_host_key_checking = HostKeyPolicy::kAsk;
  std::vector<std::string> user_known_hosts;
  std::vector<std::string> global_known_hosts;
  std::string host_key_alias;                   // empty: none
  std::optional<milliseconds> connect_timeout;  // of each connection, beside dslaunch's own
  int address_family = 0;                       // AF_UNSPEC, AF_INET, AF_INET6
  bool batch_mode = false;
  bool pubkey_authentication = true;
  bool password_authentication = true;
  bool kbd_interactive_authentication = true;
  bool compression = false;
  bool gssapi_authentication = false;
  bool hostbased_authentication = false;
  std::vector<std::string> certificate_files;  // beside those that lie next to an identity file
  uint64_t rekey_bytes = 0;                    // RekeyLimit; 0: the default
  uint32_t rekey_seconds = 0;                  // likewise
  // Comma-separated, as the option lists them; empty: the defaults.
  std::string ciphers;
  std::string macs;
  std::string kex_algorithms;
  std::string host_key_algorithms;

  bool operator==(const SshConfig&) const = default;
};

// What paths in ssh_config are completed with.
struct LocalAccount {
  std::string user;
  std::string home;
};
LocalAccount ThisAccount();

// Reads what `ssh -G` printed for `target`. Tokens of identity files are replaced. kBadInput; a
// fragment for a sentence that names the node. Pure but for SSH_AUTH_SOCK and other variables that
// it names.
Result<SshConfig> ParseSshConfig(std::string_view dump, const NodeTarget& target,
                                 const LocalAccount& account);

// "[user@]host[:port]" or ssh:// URIs, separated by commas, nearest to us first; "none" is none.
Result<std::vector<SshHop>> ParseProxyJump(std::string_view text);

// What ssh without any configuration file would do.
SshConfig DefaultSshConfig(const NodeTarget& target, const LocalAccount& account);

// What `ssh -v -G` printed.
struct SshDump {
  std::string text;     // empty: there is no ssh, and only defaults
  std::string verbose;  // stderr
};

// OpenSSH itself reads its configuration (`ssh -G`, 5 ms): libssh 0.10 knows less than half of the
// options, goes through a chain of jumps in the wrong order, and knows Match and Include in part.
// `config_file` takes the place of the user's and the system's where not empty. `ssh` is the
// program and its options; empty: ssh from PATH. Where there is none there are only defaults, which
// is an error when the user has a configuration.
Result<SshDump> AskSsh(const NodeTarget& target, const std::string& config_file,
                       const std::vector<std::string>& ssh, Deadline deadline);

}  // namespace dslaunch
