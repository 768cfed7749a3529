#include "base/os/accounts.h"

#include <unistd.h>

#include <charconv>

#include "base/deadline.h"
#include "base/os/brief_run.h"
#include "base/os/proc_text.h"
#include "base/os/subprocess.h"

namespace dslaunch {
namespace {

constexpr milliseconds kPatience(5000);

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<uint32_t> ReadId(std::string_view text) {
  uint32_t number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns the output of `getent` for this ID in `database`; empty if there is no entry.
std::string Getent(const char* database, uint32_t id) {
  for (const char* program : {"/usr/bin/getent", "/bin/getent"}) {
    if (::access(program, X_OK) != 0) continue;
    const BriefRun run = RunBriefly({program, database, std::to_string(id)}, CurrentEnvironment(),
                                    Deadline::After(kPatience));
    return run.end == BriefRun::End::kExited && run.number == 0 ? run.output : "";
  }
  return "";
}

}  // namespace

std::optional<Account> FindAccountIn(std::string_view passwd, uid_t user) {
  while (!passwd.empty()) {
    const std::vector<std::string_view> parts = Split(TakeLine(passwd), ':');
    if (parts.size() != 7 || ReadId(parts[2]) != user) continue;
    if (const std::optional<uint32_t> group = ReadId(parts[3]))
      return Account{std::string(parts[0]), user, *group, std::string(parts[5])};
  }
  return std::nullopt;
}

std::optional<AccountGroup> FindGroupIn(std::string_view groups, gid_t group) {
  while (!groups.empty()) {
    const std::vector<std::string_view> parts = Split(TakeLine(groups), ':');
    if (parts.size() != 4 || ReadId(parts[2]) != group) continue;
    AccountGroup found{std::string(parts[0]), group, {}};
    for (const std::string_view member : Split(parts[3], ',')) {
      if (!member.empty()) found.members.emplace_back(member);
    }
    return found;
  }
  return std::nullopt;
}

std::optional<Account> FindAccount(uid_t user) {
  const std::string local = ReadWhole("/etc/passwd").value_or("");
  std::optional<Account> account = FindAccountIn(local, user);
  return account ? account : FindAccountIn(Getent("passwd", user), user);
}

std::optional<AccountGroup> FindGroup(gid_t group) {
  const std::string local = ReadWhole("/etc/group").value_or("");
  std::optional<AccountGroup> found = FindGroupIn(local, group);
  return found ? found : FindGroupIn(Getent("group", group), group);
}

}  // namespace dslaunch
