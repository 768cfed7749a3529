// Accounts and groups of this machine: /etc/passwd and /etc/group, else what `getent` answers, the
// system's own program, for those that LDAP and the like have. The C library's functions are not
// used: dslaunch-agent is linked statically, and they would load libraries of the node into it.
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
  std::vector<std::string> members;  // those who have it as a further group
};

// nullopt: no such account. Waits for getent for a few seconds at most.
std::optional<Account> FindAccount(uid_t user);
std::optional<AccountGroup> FindGroup(gid_t group);

// The same out of the lines of such a file. What does not have the form is passed over. Pure.
std::optional<Account> FindAccountIn(std::string_view passwd, uid_t user);
std::optional<AccountGroup> FindGroupIn(std::string_view groups, gid_t group);

}  // namespace dslaunch
