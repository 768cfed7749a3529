// Reads the lines of OpenSSH's known_hosts that libssh 0.10 ignores: @revoked and @cert-authority.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Decodes base64. Returns an empty text if `text` is not valid base64.
std::string DecodeBase64(std::string_view text);

// Returns the names under which known_hosts may list a server, in lower case: `[host]:port` and
// `host`. A revocation under either name counts, because refusing too much is safe.
std::vector<std::string> KnownHostsNames(std::string_view host, int port);

// Returns whether the host field of a known_hosts line matches `name`. The field consists of
// comma-separated patterns with `*`, `?` and a leading `!`, or of a single hashed name
// `|1|salt|hash`.
bool HostFieldMatches(std::string_view field, std::string_view name);

// Returns the line number (from 1) of the first line in `known_hosts` that revokes the key for one
// of `names`; 0 if no line does. `known_hosts` is the content of a whole file; `key_base64` is the
// server's public key blob in base64. Other and malformed lines are skipped.
int FindRevocation(std::string_view known_hosts, const std::vector<std::string>& names,
                   std::string_view key_base64);

// Returns whether a @cert-authority line of `known_hosts` trusts an authority to certify keys for
// one of `names`. libssh 0.10 does not support such certificates.
bool HasAuthority(std::string_view known_hosts, const std::vector<std::string>& names);

}  // namespace dslaunch
