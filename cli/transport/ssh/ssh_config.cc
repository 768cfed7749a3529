#include "cli/transport/ssh/ssh_config.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "base/os/accounts.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "cli/transport/child_process.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxDumpBytes = 1 << 20;

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t\r")));
    if (text.empty()) return words;
    const size_t end = std::min(text.size(), text.find_first_of(" \t\r"));
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

template <class T>
bool ReadNumber(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

bool IsOn(std::string_view value) { return value == "yes" || value == "true"; }

std::string Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

std::string LocalHostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns the value of the token %`token`, or the token itself if it is unknown.
std::string ExpandToken(char token, const SshConfig& config, const NodeTarget& target,
                        const LocalAccount& account) {
  switch (token) {
    case '%':
      return "%";
    case 'd':
      return account.home;
    case 'h':
      return config.host_name;
    case 'i':
      return std::to_string(::getuid());
    case 'k':
      return config.host_key_alias.empty() ? target.host : config.host_key_alias;
    case 'l':
      return LocalHostName();
    case 'L': {
      const std::string name = LocalHostName();
      return name.substr(0, name.find('.'));
    }
    case 'n':
      return target.host;
    case 'p':
      return std::to_string(config.port);
    case 'r':
      return config.user;
    case 'u':
      return account.user;
    default:
      return {'%', token};
  }
}

// Expands `~`, ${VARIABLE} and %-tokens as ssh does for IdentityFile. Keeps unknown variables and
// tokens.
std::string Expand(std::string_view text, const SshConfig& config, const NodeTarget& target,
                   const LocalAccount& account) {
  std::string path;
  if (text == "~" || text.starts_with("~/")) {
    path = account.home;
    text.remove_prefix(1);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && text.substr(i).starts_with("${")) {
      const size_t end = text.find('}', i);
      if (end != std::string_view::npos) {
        path += Variable(std::string(text.substr(i + 2, end - i - 2)));
        i = end;
        continue;
      }
    }
    if (text[i] != '%' || i + 1 == text.size()) {
      path += text[i];
      continue;
    }
    path += ExpandToken(text[++i], config, target, account);
  }
  return path;
}

HostKeyPolicy ReadPolicy(std::string_view value) {
  if (value == "accept-new") return HostKeyPolicy::kAcceptNew;
  if (IsOn(value)) return HostKeyPolicy::kYes;
  return value == "ask" ? HostKeyPolicy::kAsk : HostKeyPolicy::kNo;
}

std::string AgentSocket(const std::string& identity_agent) {
  if (identity_agent == "none") return "";
  if (identity_agent.empty() || identity_agent == "SSH_AUTH_SOCK") return Variable("SSH_AUTH_SOCK");
  if (identity_agent.starts_with('$') && !identity_agent.starts_with("${"))
    return Variable(identity_agent.substr(1));
  return identity_agent;
}

Error BadJump(std::string_view jump, const std::string& why) {
  return Error{ExitCode::kBadInput, "ssh_config's ProxyJump " + Quoted(jump) + ": " + why +
                                        "; write [user@]host[:port]"};
}

// Reads an option whose value is neither a plain text nor a switch. Ignores unknown options.
Result<void> ReadOption(std::string_view name, const std::string& value, SshConfig& config) {
  if (name == "port") {
    if (!ReadNumber(value, config.port) || config.port < 1 || config.port > 65535)
      return Error{ExitCode::kBadInput, "ssh_config's Port is " + Quoted(value)};
  } else if (name == "identityfile") {
    config.identity_files.push_back(value);
  } else if (name == "certificatefile") {
    config.certificate_files.push_back(value);
  } else if (name == "userknownhostsfile") {
    config.user_known_hosts = Words(value);
  } else if (name == "globalknownhostsfile") {
    config.global_known_hosts = Words(value);
  } else if (name == "stricthostkeychecking") {
    config.strict_host_key_checking = ReadPolicy(value);
  } else if (name == "connecttimeout") {
    int64_t seconds = 0;
    if (ReadNumber(value, seconds) && seconds > 0 && seconds < 86'400)
      config.connect_timeout = milliseconds(seconds * 1000);
  } else if (name == "addressfamily") {
    config.address_family = value == "inet" ? AF_INET : value == "inet6" ? AF_INET6 : AF_UNSPEC;
  } else if (name == "rekeylimit") {
    const std::vector<std::string> limits = Words(value);
    if (!limits.empty()) ReadNumber(limits[0], config.rekey_bytes);
    if (limits.size() > 1) ReadNumber(limits[1], config.rekey_seconds);
  } else if (name == "proxyjump") {
    DSL_TRY_ASSIGN(config.proxy_jump, ParseProxyJump(value));
  }
  return {};
}

}  // namespace

LocalAccount ThisAccount() {
  if (const std::optional<Account> account = FindAccount(::getuid()))
    return {account->name, account->home};
  return {Variable("USER"), Variable("HOME")};
}

Result<std::vector<SshHop>> ParseProxyJump(std::string_view text) {
  std::vector<SshHop> hops;
  if (text == "none" || text.empty()) return hops;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view whole = text.substr(0, comma);
    std::string_view rest = whole;
    if (rest.starts_with("ssh://")) rest.remove_prefix(6);
    if (rest.ends_with('/')) rest.remove_suffix(1);
    SshHop& hop = hops.emplace_back();
    if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
      hop.user = rest.substr(0, at);
      rest.remove_prefix(at + 1);
    }
    std::string_view port;
    if (rest.starts_with('[')) {
      const size_t end = rest.find(']');
      if (end == std::string_view::npos) return BadJump(whole, "the ']' is missing");
      hop.host = rest.substr(1, end - 1);
      port = rest.substr(end + 1);
      if (!port.empty() && !port.starts_with(':'))
        return BadJump(whole, "unexpected text after ']'");
    } else {
      // A text with more than one colon is an IPv6 address without a port, so no port is split off.
      const size_t colon = rest.find(':');
      const bool has_port = colon != std::string_view::npos && colon == rest.rfind(':');
      hop.host = rest.substr(0, has_port ? colon : rest.size());
      if (has_port) port = rest.substr(colon);
    }
    if (hop.host.empty() || hop.host.starts_with('-')) return BadJump(whole, "it names no host");
    if (!port.empty() &&
        (!ReadNumber(port.substr(1), hop.port) || hop.port < 1 || hop.port > 65535)) {
      return BadJump(whole, Quoted(port.substr(1)) + " is not a port number");
    }
    if (comma == text.size()) return hops;
    text.remove_prefix(comma + 1);
  }
}

Result<SshConfig> ParseSshConfig(std::string_view dump, const NodeTarget& target,
                                 const LocalAccount& account) {
  SshConfig config;
  std::string identity_agent;
  const std::map<std::string_view, std::string*> texts = {
      {"hostname", &config.host_name},
      {"user", &config.user},
      {"hostkeyalias", &config.host_key_alias},
      {"identityagent", &identity_agent},
      {"ciphers", &config.ciphers},
      {"macs", &config.macs},
      {"kexalgorithms", &config.kex_algorithms},
      {"hostkeyalgorithms", &config.host_key_algorithms},
      {"proxycommand", &config.proxy_command}};
  const std::map<std::string_view, bool*> switches = {
      {"identitiesonly", &config.identities_only},
      {"batchmode", &config.batch_mode},
      {"pubkeyauthentication", &config.pubkey_authentication},
      {"passwordauthentication", &config.password_authentication},
      {"kbdinteractiveauthentication", &config.kbd_interactive_authentication},
      {"compression", &config.compression},
      {"gssapiauthentication", &config.gssapi_authentication},
      {"hostbasedauthentication", &config.hostbased_authentication}};
  for (const std::string_view line : SplitLines(dump)) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, space);
    const std::string value(line.substr(std::min(line.size(), space + 1)));
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
    } else if (const auto on = switches.find(name); on != switches.end()) {
      *on->second =
          name == "pubkeyauthentication" ? value != "false" && value != "no" : IsOn(value);
    } else {
      DSL_TRY(ReadOption(name, value, config));
    }
  }
  if (config.host_name.empty()) config.host_name = target.host;
  if (config.user.empty()) config.user = account.user;
  if (config.proxy_command == "none") config.proxy_command.clear();
  config.agent_socket = AgentSocket(Expand(identity_agent, config, target, account));
  for (std::string& path : config.identity_files) path = Expand(path, config, target, account);
  for (std::string& path : config.certificate_files) path = Expand(path, config, target, account);
  return config;
}

SshConfig DefaultSshConfig(const NodeTarget& target, const LocalAccount& account) {
  SshConfig config;
  config.host_name = target.host;
  if (target.port > 0) config.port = target.port;
  config.user = target.user.empty() ? account.user : target.user;
  const std::string folder = account.home + "/.ssh/";
  for (const char* name : {"id_rsa", "id_ecdsa", "id_ed25519"})
    config.identity_files.push_back(folder + name);
  config.agent_socket = Variable("SSH_AUTH_SOCK");
  config.user_known_hosts = {folder + "known_hosts", folder + "known_hosts2"};
  config.global_known_hosts = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
  return config;
}

Result<SshDump> AskSsh(const NodeTarget& target, const std::string& config_file,
                       const std::vector<std::string>& ssh, Deadline deadline) {
  std::vector<std::string> argv = ssh.empty() ? std::vector<std::string>{FindProgram("ssh")} : ssh;
  if (argv.front().empty()) {
    const std::string file =
        config_file.empty() ? ThisAccount().home + "/.ssh/config" : config_file;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return SshDump();
    return Error{ExitCode::kBadInput, "the program that reads " + Truncate(file) +
                                          " is missing: there is no ssh in PATH; install "
                                          "openssh-client"};
  }
  if (!config_file.empty()) argv.insert(argv.end(), {"-F", config_file});
  if (target.port > 0) argv.insert(argv.end(), {"-p", std::to_string(target.port)});
  if (!target.user.empty()) argv.insert(argv.end(), {"-l", target.user});
  argv.insert(argv.end(), {"-v", "-G", "--", target.host});
  SshDump dump;
  Result<std::string> text = RunForOutput(argv, deadline, kMaxDumpBytes, &dump.verbose);
  if (!text) {
    return Error{
        text.error().code == ExitCode::kUnavailable ? ExitCode::kBadInput : text.error().code,
        "ssh_config cannot be read: " + text.error().message};
  }
  dump.text = *std::move(text);
  return dump;
}

}  // namespace dslaunch
