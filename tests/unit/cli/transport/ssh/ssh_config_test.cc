#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstdlib>

#include "cli/transport/ssh/ssh_configs.h"

namespace dslaunch::ssh_config_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const NodeTarget kTarget{"node1", "alias", 0, ""};
const LocalAccount kAccount{"alice", "/home/alice"};

SshConfig Parsed(const std::string& dump) {
  const Result<SshConfig> config = ParseSshConfig(dump, kTarget, kAccount);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config ? *config : SshConfig();
}

TEST(ParseSshConfigTest, ReadsEachOption) {
  ::setenv("SSH_AUTH_SOCK", "/tmp/agent", 1);
  const SshConfig config = Parsed(
      "host alias\nuser bob\nhostname 10.0.0.7\nport 2222\naddressfamily inet6\nbatchmode yes\n"
      "identitiesonly yes\nstricthostkeychecking accept-new\nidentityfile ~/.ssh/%r@%h\n"
      "identityfile %d/k%%_%n_%p_%u\nuserknownhostsfile /a /b\nglobalknownhostsfile /c\n"
      "hostkeyalias the-alias\nconnecttimeout 3\nproxyjump u@gate,gate2:2222\ncompression yes\n"
      "rekeylimit 1048576 3600\nciphers a,b\nmacs c\nkexalgorithms d\nhostkeyalgorithms e\n"
      "pubkeyauthentication false\npasswordauthentication no\n"
      "kbdinteractiveauthentication no\nunknownoption x\n");
  EXPECT_EQ(config.user, "bob");
  EXPECT_EQ(config.host_name, "10.0.0.7");
  EXPECT_EQ(config.port, 2222);
  EXPECT_EQ(config.address_family, AF_INET6);
  EXPECT_TRUE(config.batch_mode);
  EXPECT_TRUE(config.identities_only);
  EXPECT_EQ(config.strict_host_key_checking, HostKeyPolicy::kAcceptNew);
  EXPECT_THAT(config.identity_files,
              ElementsAre("/home/alice/.ssh/bob@10.0.0.7", "/home/alice/k%_alias_2222_alice"));
  EXPECT_THAT(config.user_known_hosts, ElementsAre("/a", "/b"));
  EXPECT_THAT(config.global_known_hosts, ElementsAre("/c"));
  EXPECT_EQ(config.host_key_alias, "the-alias");
  EXPECT_EQ(config.connect_timeout, milliseconds(3000));
  EXPECT_THAT(config.proxy_jump, ElementsAre(SshHop{"u", "gate", 0}, SshHop{"", "gate2", 2222}));
  EXPECT_TRUE(config.compression);
  EXPECT_EQ(config.rekey_bytes, 1048576u);
  EXPECT_EQ(config.rekey_seconds, 3600u);
  EXPECT_EQ(config.ciphers + config.macs + config.kex_algorithms + config.host_key_algorithms,
            "a,bcde");
  EXPECT_FALSE(config.pubkey_authentication);
  EXPECT_FALSE(config.password_authentication);
  EXPECT_FALSE(config.kbd_interactive_authentication);
  EXPECT_EQ(config.agent_socket, "/tmp/agent");
}

TEST(ParseSshConfigTest, UsesDefaultsForMissingOptions) {
  const SshConfig config = Parsed("");
  EXPECT_EQ(config.host_name, "alias");
  EXPECT_EQ(config.user, "alice");
  EXPECT_EQ(config.port, 22);
  EXPECT_EQ(config.strict_host_key_checking, HostKeyPolicy::kAsk);
  EXPECT_THAT(config.proxy_jump, IsEmpty());
  EXPECT_TRUE(config.pubkey_authentication);
}

TEST(ParseSshConfigTest, ReadsNoneAsUnset) {
  const SshConfig config =
      Parsed("proxyjump none\nproxycommand none\nconnecttimeout none\nidentityagent none\n");
  EXPECT_THAT(config.proxy_jump, IsEmpty());
  EXPECT_EQ(config.proxy_command, "");
  EXPECT_FALSE(config.connect_timeout.has_value());
  EXPECT_EQ(config.agent_socket, "");
}

TEST(ParseSshConfigTest, ReadsSocketOfAgent) {
  ::setenv("SSH_AUTH_SOCK", "/tmp/agent", 1);
  ::setenv("MY_AGENT", "/tmp/mine", 1);
  EXPECT_EQ(Parsed("identityagent SSH_AUTH_SOCK\n").agent_socket, "/tmp/agent");
  EXPECT_EQ(Parsed("identityagent $MY_AGENT\n").agent_socket, "/tmp/mine");
  EXPECT_EQ(Parsed("identityagent ${MY_AGENT}.2\n").agent_socket, "/tmp/mine.2");
  EXPECT_EQ(Parsed("identityagent ~/agent\n").agent_socket, "/home/alice/agent");
}

TEST(ParseProxyJumpTest, ReadsEveryFormOfHop) {
  const Result<std::vector<SshHop>> hops =
      ParseProxyJump("a,bob@b:2222,[fd00::1]:23,fd00::2,ssh://c@d:7,e@f@g");
  ASSERT_TRUE(hops.ok()) << hops.error().message;
  EXPECT_THAT(*hops,
              ElementsAre(SshHop{"", "a", 0}, SshHop{"bob", "b", 2222}, SshHop{"", "fd00::1", 23},
                          SshHop{"", "fd00::2", 0}, SshHop{"c", "d", 7}, SshHop{"e@f", "g", 0}));
  for (const char* bad : {"a,", ",a", "a:x", "a:0", "a:65536", "[a", "[a]x", "bob@", "-oX=y"}) {
    const Result<std::vector<SshHop>> refused = ParseProxyJump(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ExitCode::kBadInput);
    EXPECT_THAT(refused.error().message, HasSubstr("[user@]host[:port]"));
  }
}

TEST(AskSshTest, ReturnsDefaultsWithoutSsh) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nonexistent", 1);
  const Result<SshConfig> config = SshConfigs().Read({"n", "host", 23, "bob"}, "/nonexistent", {},
                                                     Deadline::After(milliseconds(9)));
  const Result<SshConfig> refused = SshConfigs().Read({"n", "host", 23, "bob"}, "/etc/passwd", {},
                                                      Deadline::After(milliseconds(9)));
  ::setenv("PATH", path.c_str(), 1);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->host_name, "host");
  EXPECT_EQ(config->port, 23);
  EXPECT_EQ(config->user, "bob");
  ASSERT_FALSE(refused.ok()) << "an unreadable configuration";
  EXPECT_THAT(refused.error().message, HasSubstr("openssh-client"));
}

}  // namespace
}  // namespace dslaunch::ssh_config_test
