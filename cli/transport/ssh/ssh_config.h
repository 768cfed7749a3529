// Reads the SSH configuration for a node, as ssh_config defines it.
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

// A host through which a ProxyJump leads.
struct SshHop {
  std::string user;  // user on the host; empty to use the user of ssh_config
  std::string host;
  int port = 0;  // port of the host; 0 to use the port of ssh_config

  bool operator==(const SshHop&) const = default;
};

// Values of StrictHostKeyChecking. dslaunch never prompts, so kAsk refuses unknown keys like kYes.
enum class HostKeyPolicy { kAsk, kYes, kAcceptNew, kNo };

// The configuration for one node. The fields are named after ssh_config's options.
struct SshConfig {
  std::string host_name;
  int port = 22;
  std::string user;
  std::vector<std::string> identity_files;
  bool identities_only = false;
  std::string agent_socket;  // value of IdentityAgent or SSH_AUTH_SOCK; empty for no agent
  std::vector<SshHop> proxy_jump;
  std::string proxy_command;  // command with unexpanded tokens; may be empty
  HostKeyPolicy strict_host_key_checking = HostKeyPolicy::kAsk;
  std::vector<std::string> user_known_hosts;
  std::vector<std::string> global_known_hosts;
  std::string host_key_alias;  // value of HostKeyAlias; empty if not configured
  // Limit for each connection, in addition to dslaunch's own limit; nullopt if not configured.
  std::optional<milliseconds> connect_timeout;
  int address_family = 0;  // address family: AF_UNSPEC, AF_INET or AF_INET6
  bool batch_mode = false;
  bool pubkey_authentication = true;
  bool password_authentication = true;
  bool kbd_interactive_authentication = true;
  bool compression = false;
  bool gssapi_authentication = false;
  bool hostbased_authentication = false;
  // Certificates in addition to those found beside the identity files.
  std::vector<std::string> certificate_files;
  uint64_t rekey_bytes = 0;    // bytes of RekeyLimit; 0 for the default
  uint32_t rekey_seconds = 0;  // seconds of RekeyLimit; 0 for the default
  // Comma-separated lists of algorithms; empty for the defaults.
  std::string ciphers;
  std::string macs;
  std::string kex_algorithms;
  std::string host_key_algorithms;

  bool operator==(const SshConfig&) const = default;
};

// The account whose name and home replace `~` and tokens in ssh_config's paths.
struct LocalAccount {
  std::string user;
  std::string home;
};
LocalAccount ThisAccount();

// Parses the output of `ssh -G` for `target` and replaces the tokens of identity files. Errors are
// kBadInput, with a fragment for a sentence that names the node. Depends only on its arguments,
// SSH_AUTH_SOCK and other variables that the output names.
Result<SshConfig> ParseSshConfig(std::string_view dump, const NodeTarget& target,
                                 const LocalAccount& account);

// Parses a list of hops, each "[user@]host[:port]" or an ssh:// URI, separated by commas. The first
// hop is the closest to this machine. "none" gives an empty list.
Result<std::vector<SshHop>> ParseProxyJump(std::string_view text);

// Returns the configuration that ssh uses without any configuration file.
SshConfig DefaultSshConfig(const NodeTarget& target, const LocalAccount& account);

// The output of `ssh -v -G`, which prints the configuration for a host.
struct SshDump {
  std::string text;     // configuration; empty if ssh is not installed, so that the defaults apply
  std::string verbose;  // stderr, which names the files that ssh read
};

// Reads the configuration with `ssh -G` (5 ms). libssh 0.10 is not used for this. It supports less
// than half of the options, goes through a chain of jumps in the wrong order, and supports Match
// and Include only in part. `config_file`, if not empty, replaces the user's and the system's
// files. `ssh` is the program with its options; empty for ssh from PATH. If ssh is not installed,
// returns an empty dump, or an error if the user has a configuration file.
Result<SshDump> AskSsh(const NodeTarget& target, const std::string& config_file,
                       const std::vector<std::string>& ssh, Deadline deadline);

}  // namespace dslaunch
