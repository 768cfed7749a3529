// Tests that one `ssh -G` can be shared among many hosts, by comparison with the system's ssh.
#include "cli/transport/ssh/ssh_configs.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include "base/os/subprocess.h"

namespace dslaunch::ssh_configs_test {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::Ne;

Deadline Soon() { return Deadline::After(milliseconds(60'000)); }

// Provides a folder with a configuration, and an ssh that counts its runs.
class SshConfigsTest : public testing::Test {
 protected:
  SshConfigsTest() {
    char name[] = "/tmp/ssh-configs-XXXXXX";
    folder_ = ::mkdtemp(name);
    const std::string real = FindProgram("ssh");
    Write("ssh", "#!/bin/sh\necho x >> " + folder_ + "/runs\nexec " + real + " \"$@\"\n");
    ::chmod((folder_ + "/ssh").c_str(), 0700);
  }
  ~SshConfigsTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }

  size_t Runs() const {
    std::ifstream runs(folder_ + "/runs");
    std::string line;
    size_t count = 0;
    while (std::getline(runs, line)) ++count;
    return count;
  }

  // Reads the configuration of all hosts at the same time. The results are in the order of `hosts`.
  std::vector<SshConfig> ReadAtOnce(const std::string& config,
                                    const std::vector<std::string>& hosts) {
    const std::string file = Write("config", config);
    SshConfigs configs;
    std::vector<SshConfig> read(hosts.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < hosts.size(); ++i) {
      threads.emplace_back([&, i] {
        const NodeTarget target{hosts[i], hosts[i], 0, ""};
        Result<SshConfig> one = configs.Read(target, file, {folder_ + "/ssh"}, Soon());
        if (one.ok())
          read[i] = *std::move(one);
        else
          ADD_FAILURE() << one.error().message;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return read;
  }

  // Expects each host to have the configuration that ssh reports for this host alone.
  void ExpectRight(const std::vector<SshConfig>& read, const std::vector<std::string>& hosts) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      const NodeTarget target{hosts[i], hosts[i], 0, ""};
      const Result<SshDump> dump = AskSsh(target, folder_ + "/config", {}, Soon());
      ASSERT_TRUE(dump.ok()) << dump.error().message;
      EXPECT_EQ(read[i], *ParseSshConfig(dump->text, target, ThisAccount())) << hosts[i];
    }
  }

  std::string folder_;
};

std::vector<std::string> EightHosts() {
  std::vector<std::string> hosts;
  for (int i = 1; i <= 8; ++i) hosts.push_back("node" + std::to_string(i));
  return hosts;
}

struct Case {
  const char* name;
  const char* config;
  size_t runs;
};

class SshConfigsCountTest : public SshConfigsTest, public testing::WithParamInterface<Case> {};

TEST_P(SshConfigsCountTest, RunsSshOncePerGroupOfEqualHosts) {
  const std::vector<std::string> hosts = EightHosts();
  const std::vector<SshConfig> read = ReadAtOnce(GetParam().config, hosts);
  EXPECT_EQ(Runs(), GetParam().runs);
  ExpectRight(read, hosts);
}

INSTANTIATE_TEST_SUITE_P(
    OfEightHosts, SshConfigsCountTest,
    testing::Values(
        Case{"Nothing", "", 1}, Case{"OneForAll", "Host *\n  User bob\n  Port 2222\n", 1},
        Case{"Tokens", "IdentityFile ~/.ssh/%h-%r\nProxyCommand nc %h %p\nHostName %h\n", 1},
        Case{"Jump", "Host node*\n ProxyJump gate\nHost gate\n User eve\n", 1},
        Case{"OneApart", "Host node3\n  User bob\n", 2},
        Case{"TwoHalves",
             "Host node[1-4]\nHost node1 node2 node3 node4\n  Port 77\nHost !node1 *\n", 3},
        Case{"Tab", "\tHost\tnode3\tnode4\t\n\tPort\t=\t99\n", 2},
        Case{"MatchNames", "Match originalhost node1,node2 user root\n  Port 77\nMatch all\n", 2},
        Case{"MatchExec", "Match exec \"test %h = node2\"\n  Port 77\n", 8},
        Case{"MatchExecPlain", "Match exec true\n  Port 77\n", 8},
        Case{"OwnAddressOfOne", "Host node2\n  HostName 10.0.0.2\nHost *\n  User bob\n", 2},
        Case{"OwnAddresses", "HostName %h.example.com\n", 8},
        Case{"Canonical",
             "CanonicalizeHostname always\nCanonicalDomains nowhere.invalid\n"
             "CanonicalizeFallbackLocal yes\n",
             8}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(SshConfigsTest, ReadsIncludedFiles) {
  const std::vector<std::string> hosts = EightHosts();
  const std::string deepest = Write("deepest", "Host node5\n  Port 55\n");
  const std::string below = Write("below", "User all\nHost node4\n  Include " + deepest + "\n");
  const std::vector<SshConfig> read =
      ReadAtOnce("Include " + below + "\nHost node7\n  Port 7\n", hosts);
  EXPECT_EQ(Runs(), 4u);  // one run each for node4, node5 and node7, and one for the other nodes
  ExpectRight(read, hosts);
}

TEST_F(SshConfigsTest, SeparatesTargetsByUserAndPort) {
  const std::string file = Write("config", "Host *\n Compression yes\n");
  SshConfigs configs;
  for (const char* host : {"a1", "a2"}) {
    for (const NodeTarget& target :
         {NodeTarget{host, host, 0, ""}, NodeTarget{host, host, 0, "bob"},
          NodeTarget{host, host, 22, "bob"}, NodeTarget{host, host, 23, "bob"}}) {
      const Result<SshConfig> config = configs.Read(target, file, {folder_ + "/ssh"}, Soon());
      ASSERT_TRUE(config.ok());
      EXPECT_EQ(config->host_name, host);
      EXPECT_EQ(config->port, target.port > 0 ? target.port : 22);
      if (!target.user.empty()) EXPECT_EQ(config->user, target.user);
    }
  }
  EXPECT_EQ(Runs(), 4u);
}

TEST_F(SshConfigsTest, DoesNotShareAnswerWithJumpHost) {
  const std::string file = Write("config", "Host *\n ProxyJump gate\n");
  SshConfigs configs;
  const NodeTarget node{"n", "node1", 0, ""};
  ASSERT_TRUE(configs.Read(node, file, {folder_ + "/ssh"}, Soon()).ok());
  const NodeTarget gate{"g", "gate", 0, ""};
  const Result<SshConfig> loop = configs.Read(gate, file, {folder_ + "/ssh"}, Soon());
  EXPECT_EQ(Runs(), 2u);
  EXPECT_EQ(loop.ok(), AskSsh(gate, file, {}, Soon()).ok());
}

TEST_F(SshConfigsTest, DoesNotCacheErrors) {
  SshConfigs configs;
  const std::string file = Write("config", "Prot 22\n");
  const NodeTarget target{"a1", "a1", 0, ""};
  EXPECT_FALSE(configs.Read(target, file, {folder_ + "/ssh"}, Soon()).ok());
  Write("config", "Port 99\n");
  const Result<SshConfig> mended = configs.Read(target, file, {folder_ + "/ssh"}, Soon());
  ASSERT_TRUE(mended.ok()) << mended.error().message;
  EXPECT_EQ(mended->port, 99);
}

// The conditions are random. A host that shares an answer must get the same answer on its own.
TEST_F(SshConfigsTest, SharedAnswersMatchSshForRandomConfigs) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << '\n';
  std::mt19937 random(seed);
  const auto pick = [&](std::vector<std::string> of) { return of[random() % of.size()]; };
  const std::vector<std::string> hosts = {"a1", "a2", "b1", "b2", "ab", "A1"};
  for (int round = 0; round < 20; ++round) {
    std::string config;
    for (int line = 0; line < 6; ++line) {
      const std::string pattern = pick({"a*", "b?", "*1", "!a1 a*", "A?", "a1", "*", "a1 b2"});
      switch (random() % 4) {
        case 0:
          config += "Match " + pick({"host ", "originalhost ", "!host "}) +
                    pick({"a*", "b?,a1", "A1,b*", "!a2,*"}) + "\n";
          break;
        default:
          config += "Host " + pattern + "\n";
      }
      config += pick({"  Port 1" + std::to_string(line), "  User u" + std::to_string(line),
                      "  HostName 10.0.0." + std::to_string(line), "  HostName %h",
                      "  IdentityFile ~/.ssh/%h", "  ProxyJump gate" + std::to_string(line),
                      "  HostKeyAlias %h"}) +
                "\n";
    }
    ExpectRight(ReadAtOnce(config, hosts), hosts);
    if (HasFailure()) {
      ADD_FAILURE() << config;
      break;
    }
  }
}

TEST(SshConfigRulesTest, GroupsHostsByMatchingConditions) {
  const SshConfigRules rules({"Host a? b*c\n Port 1\nhost !x* *\n"});
  EXPECT_THAT(rules.ClassOf("a1"), Eq(rules.ClassOf("a2")));
  EXPECT_THAT(rules.ClassOf("a1"), Ne(rules.ClassOf("a11")));
  EXPECT_THAT(rules.ClassOf("bxxc"), Eq(rules.ClassOf("bc")));
  EXPECT_THAT(rules.ClassOf("x1"), Ne(rules.ClassOf("z1"))) << "a negated pattern tells them apart";
  for (const char* odd : {"", "Node", "a b", "-\n", "n%h"})
    EXPECT_THAT(rules.ClassOf(odd), Eq(std::nullopt)) << odd;
}

TEST(SshConfigRulesTest, ReturnsNoGroupOfHostsForUnsupportedConfig) {
  for (const char* text :
       {"Host \"a b\"\n", "Host a # b\n", "Match tagged x\n", "Match final host a\n",
        "Match localnetwork 10.0.0.0/8\n", "Match host=a\n", "Include conf.d/%h\n",
        "Include ${X}/a\n", "CanonicalizeHostname yes\n", "HostName x\n"}) {
    EXPECT_THAT(SshConfigRules({text}).ClassOf("a"), Eq(std::nullopt)) << text;
  }
}

TEST(DumpForTest, ReplacesNameOrReturnsNullopt) {
  EXPECT_EQ(DumpFor("n2", "host n1\nhostname n1\nport 22\n", "n1"),
            "host n2\nhostname n2\nport 22\n");
  EXPECT_EQ(DumpFor("a2", "hostname a1\nmacs hmac-sha1\n", "a1"), "hostname a2\nmacs hmac-sha1\n");
  EXPECT_EQ(DumpFor("n2", "hostname n1\nidentityfile /k/n1\n", "n1"), std::nullopt);
  EXPECT_EQ(DumpFor("n2", "hostname 10.0.0.1\n", "n1"), std::nullopt);
  EXPECT_EQ(DumpFor("n2", "", "n1"), std::nullopt);
  EXPECT_EQ(DumpFor("gate", "hostname n1\nproxyjump gate\n", "n1"), std::nullopt);
}

TEST(FilesThatSshReadsTest, ReturnsFilesNamedInOutput) {
  EXPECT_THAT(FilesThatSshReads("OpenSSH_9.2\r\ndebug1: Reading configuration data /a b\r\n"
                                "debug1: /a b line 1: Applying options for *\r\n"
                                "debug1: Reading configuration data /c\n"),
              ElementsAre("/a b", "/c"));
}

}  // namespace
}  // namespace dslaunch::ssh_configs_test
