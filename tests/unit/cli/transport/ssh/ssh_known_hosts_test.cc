#include "cli/transport/ssh/ssh_known_hosts.h"

#include <gtest/gtest.h>

namespace dslaunch::ssh_known_hosts_test {
namespace {

TEST(HostFieldMatchesTest, MatchesPatterns) {
  EXPECT_TRUE(HostFieldMatches("node1", "node1"));
  EXPECT_TRUE(HostFieldMatches("NODE1", "node1"));
  EXPECT_TRUE(HostFieldMatches("a,b,node1", "node1"));
  EXPECT_TRUE(HostFieldMatches("node?", "node1"));
  EXPECT_TRUE(HostFieldMatches("*", "node1"));
  EXPECT_TRUE(HostFieldMatches("n*1", "node1"));
  EXPECT_TRUE(HostFieldMatches("*.example.com", "node1.example.com"));
  EXPECT_TRUE(HostFieldMatches("[node1]:2222", "[node1]:2222"));
  EXPECT_TRUE(HostFieldMatches("node*,!node2", "node1"));
  EXPECT_FALSE(HostFieldMatches("node*,!node2", "node2"));
  EXPECT_FALSE(HostFieldMatches("!node2", "node1"));
  EXPECT_FALSE(HostFieldMatches("node", "node1"));
  EXPECT_FALSE(HostFieldMatches("node1", "node"));
  EXPECT_FALSE(HostFieldMatches("node??", "node1"));
  EXPECT_FALSE(HostFieldMatches("", "node1"));
  EXPECT_FALSE(HostFieldMatches(",,", "node1"));
}

TEST(HostFieldMatchesTest, MatchesManyStarsQuickly) {
  std::string pattern, name(2000, 'a');
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(HostFieldMatches(pattern + "b", name));
  EXPECT_TRUE(HostFieldMatches(pattern, name));
}

TEST(HostFieldMatchesTest, MatchesHashedNames) {
  // The hashes were made by `ssh-keygen -H` from "node1" and "[node1]:2222".
  const char* node1 = "|1|lkS8A2SgzqGxQFT6sJ+BbCnl6sc=|mb+riwCFioMCPNUVwMRlIx1WTCg=";
  const char* node1_port = "|1|lPk/1SGGRsy97z2P0Z56FREOoS8=|c8Ky56f+3nCrHkgSfLTDQiJCiRI=";
  EXPECT_TRUE(HostFieldMatches(node1, "node1"));
  EXPECT_FALSE(HostFieldMatches(node1, "node2"));
  EXPECT_TRUE(HostFieldMatches(node1_port, "[node1]:2222"));
  EXPECT_FALSE(HostFieldMatches(node1_port, "node1"));
  for (const char* broken :
       {"|1|", "|1||", "|1|abc|def", "|1|AAAA|", "|1|!!!!|AAAA", "|2|AAAA|AAAA"}) {
    EXPECT_FALSE(HostFieldMatches(broken, "node1")) << broken;
  }
}

TEST(FindRevocationTest, FindsLineThatRevokesKey) {
  const std::vector<std::string> names = KnownHostsNames("Node1", 2222);
  const std::string listed = "[node1]:2222 ssh-ed25519 KEY\n# @revoked * ssh-ed25519 KEY\n\n";
  EXPECT_EQ(FindRevocation(listed, names, "KEY"), 0);
  EXPECT_EQ(FindRevocation(listed + "@revoked * ssh-ed25519 KEY comment", names, "KEY"), 4);
  EXPECT_EQ(FindRevocation(listed + "  @revoked\t[node1]:2222  ssh-ed25519 KEY\r\n", names, "KEY"),
            4);
  EXPECT_EQ(FindRevocation(listed + "@revoked node1 ssh-ed25519 KEY\n", names, "KEY"), 4);
  EXPECT_EQ(FindRevocation(listed + "@revoked node2 ssh-ed25519 KEY\n", names, "KEY"), 0);
  EXPECT_EQ(FindRevocation(listed + "@revoked * ssh-ed25519 OTHER\n", names, "KEY"), 0);
  EXPECT_EQ(FindRevocation(listed + "@cert-authority * ssh-ed25519 KEY\n", names, "KEY"), 0);
  EXPECT_EQ(FindRevocation("@revoked\n@revoked *\n@revoked * ssh-rsa\n", names, "KEY"), 0);
  EXPECT_EQ(FindRevocation("", names, "KEY"), 0);
}

TEST(FindRevocationTest, IgnoresLineWithoutKey) {
  EXPECT_EQ(FindRevocation("@revoked * ssh-rsa \n", KnownHostsNames("a", 22), ""), 0);
}

TEST(HasAuthorityTest, AppliesToNamesOfItsLine) {
  const std::string file =
      "node1 ssh-ed25519 AAAA\n@cert-authority *.lab,node2 ssh-ed25519 AAAA\n@revoked node3 x y\n";
  EXPECT_TRUE(HasAuthority(file, {"[node2]:22", "node2"}));
  EXPECT_TRUE(HasAuthority(file, {"[a.lab]:22", "a.lab"}));
  EXPECT_FALSE(HasAuthority(file, {"[node1]:22", "node1"}));
  EXPECT_FALSE(HasAuthority(file, {"[node3]:22", "node3"}));
  EXPECT_FALSE(HasAuthority("", {"node1"}));
}

}  // namespace
}  // namespace dslaunch::ssh_known_hosts_test
