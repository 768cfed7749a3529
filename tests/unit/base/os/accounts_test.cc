#include "base/os/accounts.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

namespace dslaunch::accounts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kPasswd[] =
    "root:x:0:0:root:/root:/bin/bash\n"
    "+::::::\n"
    "short:x:1000\n"
    "letters:x:a1000:1000::/nowhere:/bin/sh\n"
    "ada:x:1000:1001:Ada, of Turin:/home/ada:/bin/zsh\n"
    "second:x:1000:7::/home/second:/bin/sh\n"
    "last:x:4294967294:2::/:/bin/sh";

TEST(AccountsTest, FindsFirstCompleteLineWithTheUserId) {
  const std::optional<Account> ada = FindAccountIn(kPasswd, 1000);
  ASSERT_TRUE(ada);
  EXPECT_EQ(ada->name, "ada");
  EXPECT_EQ(ada->user, 1000u);
  EXPECT_EQ(ada->group, 1001u);
  EXPECT_EQ(ada->home, "/home/ada");
  EXPECT_EQ(FindAccountIn(kPasswd, 4294967294u)->name, "last");
  EXPECT_FALSE(FindAccountIn(kPasswd, 1));
  EXPECT_FALSE(FindAccountIn("", 0));
}

TEST(AccountsTest, ReadsGroupMembers) {
  constexpr char kGroups[] = "root:x:0:\nvideo:x:44:ada,bob\nbroken:x:45\n";
  EXPECT_EQ(FindGroupIn(kGroups, 0)->name, "root");
  EXPECT_THAT(FindGroupIn(kGroups, 0)->members, IsEmpty());
  EXPECT_THAT(FindGroupIn(kGroups, 44)->members, ElementsAre("ada", "bob"));
  EXPECT_FALSE(FindGroupIn(kGroups, 45));
}

TEST(AccountsTest, AgreesWithTheCLibrary) {
  const passwd* own = ::getpwuid(::getuid());
  ASSERT_NE(own, nullptr);
  const std::optional<Account> account = FindAccount(::getuid());
  ASSERT_TRUE(account);
  EXPECT_EQ(account->name, own->pw_name);
  EXPECT_EQ(account->home, own->pw_dir);
  EXPECT_EQ(account->group, own->pw_gid);
  EXPECT_EQ(FindGroup(account->group)->name, ::getgrgid(own->pw_gid)->gr_name);
  // No account has this number, in the files or by getent.
  EXPECT_FALSE(FindAccount(4'000'000'123u));
  EXPECT_FALSE(FindGroup(4'000'000'123u));
}

}  // namespace
}  // namespace dslaunch::accounts_test
