#include "cli/transport/ssh/ssh_proxy.h"

#include <gmock/gmock.h>

namespace dslaunch::ssh_proxy_test {
namespace {

using testing::HasSubstr;

const ProxyTokens kTokens{"10.0.0.2", 2222, "alice", "node1"};

TEST(ExpandProxyCommandTest, ReplacesTokens) {
  const Result<std::string> command =
      ExpandProxyCommand("ssh -W '[%h]:%p' -l %r gate # %n 100%%", kTokens);
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(*command, "ssh -W '[10.0.0.2]:2222' -l alice gate # node1 100%");
}

TEST(ExpandProxyCommandTest, RejectsNamesUnsafeForShell) {
  for (const char* name :
       {"a;id", "$(id)", "`id`", "a b", "-oProxyCommand=id", "a\nb", "a'b", ""}) {
    ProxyTokens tokens = kTokens;
    tokens.host = name;
    EXPECT_EQ(ExpandProxyCommand("nc %h %p", tokens).error().code, ExitCode::kBadInput) << name;
    EXPECT_TRUE(ExpandProxyCommand("nc gate %p", tokens).ok()) << "not handed over";
  }
}

TEST(ExpandProxyCommandTest, RejectsUnknownTokens) {
  EXPECT_THAT(ExpandProxyCommand("nc %q", kTokens).error().message, HasSubstr("%q"));
  EXPECT_FALSE(ExpandProxyCommand("nc %", kTokens).ok());
}

}  // namespace
}  // namespace dslaunch::ssh_proxy_test
