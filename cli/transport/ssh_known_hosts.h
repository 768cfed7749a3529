// The parts of OpenSSH's known_hosts format that libssh 0.10 passes over: @revoked and
// @cert-authority lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Empty when it is not base64.
std::string DecodeBase64(std::string_view text);

// The names under which known_hosts may list a server: `[host]:port` and `host`, lower case. A
// revocation under either counts, since refusing too much is the safe side.
std::vector<std::string> KnownHostsNames(std::string_view host, int port);

// True when the host field of a known_hosts line (comma-separated patterns with `*`, `?` and
// leading `!`, or one hashed name `|1|salt|hash`) names `name`.
bool HostFieldMatches(std::string_view field, std::string_view name);

// The number of the first line of `known_hosts` (a whole file, 1-based) that revokes the key for
// one of `names`; 0 when none does. `key_base64` is the server's public key blob in base64. Lines
// of other kinds and malformed lines are passed over.
int FindRevocation(std::string_view known_hosts, const std::vector<std::string>& names,
                   std::string_view key_base64);

// Whether a line of `known_hosts` trusts an authority to certify the keys of one of `names`
// (@cert-authority), as libssh 0.10 does not.
bool HasAuthority(std::string_view known_hosts, const std::vector<std::string>& names);

}  // namespace dslaunch
