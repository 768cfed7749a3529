#include "cli/transport/ssh/ssh_known_hosts.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "base/text/split_lines.h"
#include "cli/transport/ssh/wildcard.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxHashedName = 1024;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

std::string ToLower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), Lower);
  return lower;
}

// Returns whether a hashed host field matches `name`. `field` has the form `|1|base64 salt|base64
// HMAC-SHA1(salt, name)`.
bool HashedNameMatches(std::string_view field, std::string_view name) {
  field.remove_prefix(3);
  const size_t bar = field.find('|');
  if (bar == std::string_view::npos || field.size() > kMaxHashedName) return false;
  const std::string salt = DecodeBase64(field.substr(0, bar));
  const std::string hash = DecodeBase64(field.substr(bar + 1));
  if (salt.empty() || hash.empty()) return false;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha1(), salt.data(), static_cast<int>(salt.size()),
       reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest, &size);
  return hash == std::string_view(reinterpret_cast<const char*>(digest), size);
}

std::string_view ReadField(std::string_view& line) {
  constexpr std::string_view kSpace = " \t\r";
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kSpace)));
  const std::string_view field = line.substr(0, line.find_first_of(kSpace));
  line.remove_prefix(field.size());
  return field;
}

}  // namespace

std::string DecodeBase64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return "";
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return "";
  const size_t padding = text.size() - std::min(text.size(), text.find_last_not_of('=') + 1);
  bytes.resize(bytes.size() - std::min<size_t>(padding, 2));
  return bytes;
}

std::vector<std::string> KnownHostsNames(std::string_view host, int port) {
  const std::string lower = ToLower(host);
  return {"[" + lower + "]:" + std::to_string(port), lower};
}

bool HostFieldMatches(std::string_view field, std::string_view name) {
  if (field.starts_with("|1|")) return HashedNameMatches(field, name);
  bool matches = false;
  while (!field.empty()) {
    const size_t comma = std::min(field.find(','), field.size());
    std::string_view pattern = field.substr(0, comma);
    field.remove_prefix(std::min(field.size(), comma + 1));
    const bool negated = pattern.starts_with('!');
    if (negated) pattern.remove_prefix(1);
    if (pattern.empty() || !WildcardMatches(ToLower(pattern), ToLower(name))) continue;
    if (negated) return false;
    matches = true;
  }
  return matches;
}

int FindRevocation(std::string_view known_hosts, const std::vector<std::string>& names,
                   std::string_view key_base64) {
  if (key_base64.empty()) return 0;
  int number = 0;
  for (std::string_view line : SplitLines(known_hosts)) {
    ++number;
    if (ReadField(line) != "@revoked") continue;
    const std::string_view hosts = ReadField(line);
    ReadField(line);  // skips the key's type, which the key contains too
    if (ReadField(line) != key_base64) continue;
    const auto listed = [hosts](const std::string& name) { return HostFieldMatches(hosts, name); };
    if (std::any_of(names.begin(), names.end(), listed)) return number;
  }
  return 0;
}

bool HasAuthority(std::string_view known_hosts, const std::vector<std::string>& names) {
  return std::ranges::any_of(SplitLines(known_hosts), [&names](std::string_view line) {
    if (ReadField(line) != "@cert-authority") return false;
    const std::string_view hosts = ReadField(line);
    return std::ranges::any_of(
        names, [hosts](const std::string& name) { return HostFieldMatches(hosts, name); });
  });
}

}  // namespace dslaunch
