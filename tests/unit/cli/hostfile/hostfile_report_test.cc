#include "cli/hostfile/hostfile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/hostfile/hostfile_sources.h"

namespace dslaunch::hostfile_report_test {
namespace {

using ::testing::HasSubstr;

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

TEST(HostfileReportTest, WritesHostfileThatCanBeReadBack) {
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

TEST(HostfileReportTest, TableAndJsonShowProblems) {
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

}  // namespace
}  // namespace dslaunch::hostfile_report_test
