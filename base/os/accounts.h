// Looks up accounts and groups of this machine in /etc/passwd and /etc/group, otherwise (LDAP and
// similar databases) through the system's program `getent`. The C library's functions are not used,
// because dslaunch-agent is linked statically and they would load the node's libraries into it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct Account {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
  std::string home;
};

struct AccountGroup {
  std::string name;
  gid_t group = 0;
  std::vector<std::string> members;  // accounts for which this is a supplementary group
};

// Return the account or group, or nullopt if there is none. Wait for at most a few seconds for
// getent.
std::optional<Account> FindAccount(uid_t user);
std::optional<AccountGroup> FindGroup(gid_t group);

// Find an entry in the text of /etc/passwd or /etc/group; nullopt if there is none. Skip malformed
// lines. Pure.
std::optional<Account> FindAccountIn(std::string_view passwd, uid_t user);
std::optional<AccountGroup> FindGroupIn(std::string_view groups, gid_t group);

}  // namespace dslaunch
