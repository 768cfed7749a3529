#include "cli/transport/ssh_proxy.h"

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

TEST(IsTurnedAwayTextTest, DistinguishesOverloadFromRefusal) {
  EXPECT_TRUE(
      IsTurnedAwayText("kex_exchange_identification: Connection closed by remote host\r\n"
                       "Connection closed by 10.0.0.1 port 22\r\n"));
  EXPECT_TRUE(IsTurnedAwayText("kex_exchange_identification: read: Connection reset by peer\r\n"));
  EXPECT_TRUE(IsTurnedAwayText("Connection reset by 10.0.0.1 port 22\r\n"));
  EXPECT_FALSE(IsTurnedAwayText(""));
  EXPECT_FALSE(IsTurnedAwayText("alice@gate: Permission denied (publickey).\r\n"));
  // The inner ssh was refused; the outer one only lost its connection.
  const std::string outer = "kex_exchange_identification: Connection closed by remote host\r\n";
  EXPECT_FALSE(IsTurnedAwayText("alice@gate: Permission denied (publickey).\r\n" + outer));
  EXPECT_FALSE(IsTurnedAwayText("Host key verification failed.\r\n" + outer));
  EXPECT_FALSE(
      IsTurnedAwayText("ssh: connect to host gate port 22: Connection refused\r\n" + outer));
}

}  // namespace
}  // namespace dslaunch::ssh_proxy_test
