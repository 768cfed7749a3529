#include "cli/options/hostfile_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "base/put_file.h"
#include "cli/commands/hostfile_report.h"
#include "cli/commands/hostfile_sources.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Kind = HostfileCommand::Kind;
using Source = HostfileCommand::Source;

std::string Refusal(const std::vector<std::string>& words) {
  const Result<HostfileCommand> command = ParseHostfileCommand(words);
  if (command.ok()) return "";
  EXPECT_EQ(command.error().code, ExitCode::kUsage);
  EXPECT_EQ(command.error().message.find('\n'), std::string::npos);
  return command.error().message;
}

TEST(HostfileCommandTest, Write) {
  const auto hosts = ParseHostfileCommand({"hostfile", "write", "--hosts", "a,u@b:22,c", "-o", "hf",
                                           "--force", "--skip-failing", "--connect-timeout=3"});
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_EQ(hosts->kind, Kind::kWrite);
  EXPECT_EQ(hosts->source, Source::kHosts);
  EXPECT_THAT(hosts->hosts, ElementsAre("a", "u@b:22", "c"));
  EXPECT_EQ(hosts->output, "hf");
  EXPECT_TRUE(hosts->force && hosts->skip_failing);
  EXPECT_EQ(hosts->connect_timeout_ms, 3000);
  EXPECT_EQ(ParseHostfileCommand({"hostfile", "write", "--slurm"})->source, Source::kSlurm);
  EXPECT_EQ(ParseHostfileCommand({"hostfile", "write", "--ssh-config"})->source,
            Source::kSshConfig);
}

TEST(HostfileCommandTest, CheckAndHelp) {
  const auto check = ParseHostfileCommand({"hostfile", "check", "--json", "my/hf"});
  ASSERT_TRUE(check.ok()) << check.error().message;
  EXPECT_EQ(check->kind, Kind::kCheck);
  EXPECT_EQ(check->file, "my/hf");
  EXPECT_TRUE(check->json);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"hostfile", "--help"},
                                                {"hostfile", "write", "-h"},
                                                {"hostfile", "check", "--help"}}) {
    const auto help = ParseHostfileCommand(words);
    ASSERT_TRUE(help.ok());
    EXPECT_EQ(help->kind, Kind::kHelp);
    EXPECT_THAT(help->text, HasSubstr("dslaunch hostfile check FILE"));
  }
}

TEST(HostfileCommandTest, RefusalsSayTheWayOut) {
  EXPECT_THAT(Refusal({"hostfile"}), HasSubstr("write or check"));
  EXPECT_THAT(Refusal({"hostfile", "wirte"}), HasSubstr("did you mean write?"));
  EXPECT_THAT(Refusal({"hostfile", "zzzzz"}), HasSubstr("it does write and check"));
  EXPECT_THAT(Refusal({"hostfile", "write"}), HasSubstr("--hosts a,b,c, --slurm or --ssh_config"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--slurm", "--hosts", "a"}), HasSubstr("say once"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--slurm", "--force"}), HasSubstr("--output FILE"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--slrum"}), HasSubstr("did you mean --slurm?"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--hosts"}), HasSubstr("--hosts"));
  EXPECT_THAT(Refusal({"hostfile", "check"}), HasSubstr("which file?"));
  EXPECT_THAT(Refusal({"hostfile", "check", "a", "b"}), HasSubstr("'b'"));
  EXPECT_THAT(Refusal({"hostfile", "check", "a", "--connect_timeout", "soon"}), HasSubstr("soon"));
}

TEST(HostsFromNamesTest, EachOnceAndChecked) {
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

TEST(ExpandNodeListTest, AsScontrolShowHostnames) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"", {}},
      {"a", {"a"}},
      {"a,b", {"a", "b"}},
      {"n[1-3]", {"n1", "n2", "n3"}},
      {"n[08-11]", {"n08", "n09", "n10", "n11"}},
      {"n[001-002,010]", {"n001", "n002", "n010"}},
      {"n[9-10]", {"n9", "n10"}},
      {"n[7]", {"n7"}},
      {"login,gpu[1-2]-ib[0-1],x", {"login", "gpu1-ib0", "gpu1-ib1", "gpu2-ib0", "gpu2-ib1", "x"}},
      {"r[1-2]n3.cluster", {"r1n3.cluster", "r2n3.cluster"}},
      {"[5-6]", {"5", "6"}},
  };
  for (const auto& [list, names] : cases) {
    const auto expanded = ExpandNodeList(list);
    ASSERT_TRUE(expanded.ok()) << list << ": " << expanded.error().message;
    EXPECT_EQ(*expanded, names) << list;
  }
  EXPECT_EQ(ExpandNodeList("n[1-50000],m[1-50000]")->size(), kMaxListedNodes);
}

TEST(ExpandNodeListTest, WhatIsNoListIsRefusedAndNothingGrows) {
  for (const char* list :
       {"n[1-3", "n1-3]", "n[1-[2-3]]", "n[]", "n[a-b]", "n[3-1]", "n[1-]", "n[-1]", "n[1,]", ",a",
        "a,,b", "n[1--2]", "n[+1]", "n[0-99999999]", "n[1-99999999999999999999]",
        "n[1-50000],m[1-50001]", "n[1-1000]m[1-1000]", "n[0-18446744073709551615]"}) {
    EXPECT_FALSE(ExpandNodeList(list).ok()) << list;
  }
}

const char* g_list = nullptr;
const char* g_count = nullptr;
const char* FakeGetenv(const char* name) {
  const std::string_view variable(name);
  return variable == "SLURM_JOB_NODELIST" ? g_list : variable == "SLURM_NNODES" ? g_count : nullptr;
}

TEST(SlurmNodesTest, TheCountIsChecked) {
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

TEST(SshConfigNamesTest, HostsWithoutPatternsAndIncludes) {
  const auto names = ParseSshConfigNames(
      "# Host commented\nHost a b\n  HostName 10.0.0.1\n\thost = c\nHOST \"d e\" f # g\r\n"
      "Host *\nHost !x y?\nHost=z\nMatch host m\nInclude conf.d/* \"with space\"\nHostName n\n");
  using Name = SshConfigName;
  EXPECT_THAT(names, ElementsAre(Name{false, "a"}, Name{false, "b"}, Name{false, "c"},
                                 Name{false, "d e"}, Name{false, "f"}, Name{false, "z"},
                                 Name{true, "conf.d/*"}, Name{true, "with space"}));
}

TEST(SshConfigHostsTest, FollowsIncludesToAnEnd) {
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

AskedHost Asked(const std::string& name, int gpus, int cores, int slots = 1) {
  AskedHost asked;
  asked.host = HostsFromNames({name}, "test")->front();
  asked.host.slots = slots;
  asked.gpus = gpus;
  asked.gpu_name = gpus > 0 ? "NVIDIA H100" : "";
  asked.cores = cores;
  asked.memory_bytes = 64ull << 30;
  return asked;
}

TEST(HostfileReportTest, WhatIsWrittenIsReadAgain) {
  const std::vector<AskedHost> hosts = {
      Asked("node1", 8, 96),           Asked("alice@node2:2222", 0, 2),   Asked("[::1]:22", 1, 1),
      Asked("node2:2223", 0, 1 << 20), Asked("corp\\bob@10.0.0.1", 1, 1), Asked("null", 3, 1)};
  for (const bool yaml : {false, true}) {
    const std::string text = WriteHostfileText(hosts, yaml);
    const auto read = ParseHostfile(text, yaml ? "hf.yaml" : "hf");
    ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
    ASSERT_EQ(read->size(), hosts.size());
    for (size_t i = 0; i < hosts.size(); ++i) {
      EXPECT_EQ((*read)[i].host, hosts[i].host.host);
      EXPECT_EQ((*read)[i].port, hosts[i].host.port);
      EXPECT_EQ((*read)[i].user, hosts[i].host.user);
    }
    EXPECT_EQ(read->front().slots, 8);
    EXPECT_EQ((*read)[1].slots, 2);
    EXPECT_EQ((*read)[3].slots, kMaxSlots);
  }
  EXPECT_THAT(WriteHostfileText(hosts, false),
              HasSubstr("\nnode1              slots=8     # 8 GPUs (NVIDIA H100)\n"));
}

TEST(HostfileReportTest, TableAndJsonNameWhatIsWrong) {
  std::vector<AskedHost> hosts = {Asked("node1", 8, 96, 8), Asked("u@node2:2222", 4, 96, 8),
                                  Asked("node3", 0, 2, 16), Asked("node4", 0, 0, 2)};
  hosts[0].host.labels = {{"rack", "a7\x1b"}};
  hosts[0].host.spare = true;
  hosts[3].failure = Error{ExitCode::kUnavailable, "node 'node4': it does not answer"};
  EXPECT_EQ(HostTable(hosts),
            "NODE          ADDRESS       SLOTS  GPUS  CORES  MEMORY  LABELS   STATUS\n"
            "node1         node1         8      8     96     64 GiB  rack=a7  ok, spare\n"
            "u@node2:2222  u@node2:2222  8      4     96     64 GiB           FAILED: 8 slots, but "
            "4 GPUs\n"
            "node3         node3         16     0     2      64 GiB           ok\n"
            "node4         node4         2      -     -      -                FAILED\n");
  const std::string json = HostsJson("hf", hosts);
  EXPECT_THAT(json, HasSubstr("\"ok\": false"));
  EXPECT_THAT(json, HasSubstr("\"problem\": \"node 'node4': it does not answer\""));
  EXPECT_THAT(json, HasSubstr("\"problem\": \"8 slots, but 4 GPUs\""));
  EXPECT_THAT(HostsJson("hf", {hosts[0]}), HasSubstr("\"ok\": true"));
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PutFileTest, NeverOverwritesUnasked) {
  const TempDir dir;
  const std::string path = dir / "hf";
  ASSERT_TRUE(PutFile(path, "one\n", false).ok());
  const Result<void> again = PutFile(path, "two\n", false);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ExitCode::kUsage);
  EXPECT_THAT(again.error().message, HasSubstr("--force"));
  EXPECT_EQ(Content(path), "one\n");
  ASSERT_TRUE(PutFile(path, "three\n", true).ok());
  EXPECT_EQ(Content(path), "three\n");
  EXPECT_EQ(PutFile(dir / "no/folder", "", false).error().code, ExitCode::kIo);
  EXPECT_EQ(PutFile(dir.path(), "", true).error().code, ExitCode::kIo) << "a folder";
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ++files;
  EXPECT_EQ(files, 1u) << "nothing half written is left";
}

}  // namespace
}  // namespace dslaunch
