// Looks up accounts and groups of this machine. Reads /etc/passwd and /etc/group, and uses the
// system's program `getent` for other databases such as LDAP. The C library's functions would load
// libraries of the node into the statically linked dslaunch-agent, so they are not used.
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
  std::vector<std::string> members;  // accounts whose supplementary groups include this group
};

// Returns the account with this ID; nullopt if there is none. Waits at most a few seconds for
// getent.
std::optional<Account> FindAccount(uid_t user);

// Returns the group with this ID; nullopt if there is none. Waits at most a few seconds for getent.
std::optional<AccountGroup> FindGroup(gid_t group);

// Returns the account with this ID in `passwd`, the content of /etc/passwd; nullopt if there is
// none. Skips malformed lines. Pure.
std::optional<Account> FindAccountIn(std::string_view passwd, uid_t user);

// Returns the group with this ID in `groups`, the content of /etc/group; nullopt if there is none.
// Skips malformed lines. Pure.
std::optional<AccountGroup> FindGroupIn(std::string_view groups, gid_t group);

}  // namespace dslaunch
