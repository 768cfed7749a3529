#include "cli/hostfile/hostfile_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::hostfile_sources_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(HostsFromNamesTest, ReturnsUniqueHostsAndRejectsInvalidNames) {
  const auto hosts = HostsFromNames({"a", "u@b:2222", "a", "[::1]:22"}, "--hosts");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  ASSERT_THAT(*hosts, SizeIs(3));
  EXPECT_EQ((*hosts)[1].user, "u");
  EXPECT_EQ((*hosts)[1].port, 2222);
  EXPECT_EQ((*hosts)[2].host, "::1");
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"a", ""}, "--hosts: '': no host name"},
      {{"a", "b c"}, "--hosts: 'b c': not a host name"},
      {{"-oProxyCommand=x"}, "--hosts: '-oProxyCommand=x': not a host name"},
      {{"a:0"}, "--hosts: 'a:0': port must be a number"},
      {{"a", "A:22"}, "--hosts: 'A:22': given twice"},
      {{}, "--hosts: no hosts"},
  };
  for (const auto& [names, message] : bad) {
    const auto refused = HostsFromNames(names, "--hosts");
    ASSERT_FALSE(refused.ok()) << message;
    EXPECT_EQ(refused.error().code, ExitCode::kUsage);
    EXPECT_THAT(refused.error().message, HasSubstr(message));
  }
}

const char* g_list = nullptr;
const char* g_count = nullptr;
const char* FakeGetenv(const char* name) {
  const std::string_view variable(name);
  return variable == "SLURM_JOB_NODELIST" ? g_list : variable == "SLURM_NNODES" ? g_count : nullptr;
}

TEST(SlurmNodesTest, RejectsListThatDisagreesWithCount) {
  g_list = "n[1-2]";
  for (const char* count : {static_cast<const char*>(nullptr), "2"}) {
    g_count = count;
    EXPECT_THAT(*SlurmNodes(FakeGetenv), ElementsAre("n1", "n2"));
  }
  g_count = "3";
  EXPECT_THAT(SlurmNodes(FakeGetenv).error().message,
              HasSubstr("SLURM_JOB_NODELIST has 2 nodes, but SLURM_NNODES is 3"));
  g_list = "n[1-2";
  EXPECT_THAT(SlurmNodes(FakeGetenv).error().message, HasSubstr("the brackets in 'n[1-2'"));
  g_list = nullptr;
  EXPECT_THAT(SlurmNodes(FakeGetenv).error().message, HasSubstr("salloc"));
}

TEST(SshConfigNamesTest, ReturnsPlainHostsAndIncludes) {
  const auto names = ParseSshConfigNames(
      "# Host commented\nHost a b\n  HostName 10.0.0.1\n\thost = c\nHOST \"d e\" f # g\r\n"
      "Host *\nHost !x y?\nHost=z\nMatch host m\nInclude conf.d/* \"with space\"\nHostName n\n");
  using Name = SshConfigName;
  EXPECT_THAT(names, ElementsAre(Name{false, "a"}, Name{false, "b"}, Name{false, "c"},
                                 Name{false, "d e"}, Name{false, "f"}, Name{false, "z"},
                                 Name{true, "conf.d/*"}, Name{true, "with space"}));
}

TEST(SshConfigHostsTest, FollowsIncludesAndRejectsCycles) {
  const TempDir home;
  std::filesystem::create_directories(home / ".ssh/conf.d");
  EXPECT_THAT(SshConfigHosts(home.path()).error().message, HasSubstr(".ssh/config: No such file"));
  home.Write(".ssh/config", "Host *\n");
  EXPECT_THAT(SshConfigHosts(home.path()).error().message, HasSubstr("no Host line"));
  home.Write(".ssh/config", "Include conf.d/*.conf none/*\nHost a b\nInclude ~/more\n");
  home.Write(".ssh/conf.d/1.conf", "Host c\n");
  home.Write(".ssh/conf.d/2.conf", "Host a d\n");
  home.Write("more", "Host e\n");
  EXPECT_THAT(*SshConfigHosts(home.path()), ElementsAre("c", "a", "d", "b", "e"));
  home.Write(".ssh/config", "Include config\n");
  EXPECT_THAT(SshConfigHosts(home.path()).error().message, HasSubstr("does a file include itself"));
  EXPECT_EQ(SshConfigHosts("").error().code, ExitCode::kUsage);
}

}  // namespace
}  // namespace dslaunch::hostfile_sources_test
