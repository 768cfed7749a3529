#include "cli/commands/doctor_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dslaunch::doctor_report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Level = Finding::Level;

constexpr uint64_t kGiB = uint64_t{1} << 30;

pb::NodeInfo HealthyReport(const std::string& identity) {
  pb::NodeInfo report;
  report.set_version("1.0");
  report.set_build_id("abc");
  report.set_identity(identity);
  report.set_cores(8);
  report.set_memory_bytes(32 * kGiB);
  report.set_memory_available_bytes(16 * kGiB);
  for (const auto use : {pb::Disk::STATE, pb::Disk::SHARED_MEMORY}) {
    pb::Disk& disk = *report.add_disks();
    disk.set_use(use);
    disk.set_path(use == pb::Disk::STATE ? "/home/a" : "/dev/shm");
    disk.set_free_bytes(100 * kGiB);
    disk.set_total_bytes(200 * kGiB);
  }
  for (pb::Limit* limit :
       {report.mutable_open_files(), report.mutable_processes(), report.mutable_locked_memory()}) {
    limit->set_soft(1 << 20);
    limit->set_hard(UINT64_MAX);
  }
  return report;
}

void AddGpus(pb::NodeInfo& report, int count, const std::string& driver = "580.82") {
  for (int i = 0; i < count; ++i) report.mutable_gpus()->add_installed()->set_name("NVIDIA H100");
  report.mutable_gpus()->set_visible(static_cast<uint32_t>(count));
  report.mutable_gpus()->set_driver(driver);
}

// Describes two healthy nodes with two slots each, reached over SSH; the first node hosts the
// rendezvous.
class DoctorReportTest : public ::testing::Test {
 protected:
  DoctorReportTest() {
    info_.launcher = Launcher::kSsh;
    info_.version = "1.0";
    info_.build_id = "abc";
    info_.cwd = "/work";
    info_.world_size = 4;
    for (const char* name : {"node1", "node2"}) {
      DoctorNode node;
      node.name = name;
      node.slots = 2;
      node.steps = {"resolve", "connect", "handshake", "host key", "login", "start agent"};
      node.report = HealthyReport(name);
      info_.nodes.push_back(std::move(node));
    }
    info_.rendezvous = 0;
    info_.listen.emplace();
    info_.listen->add_endpoints("10.0.0.1:4100");
    info_.nodes[1].reach.emplace();
    pb::ReachResult& attempt = *info_.nodes[1].reach->add_results();
    attempt.set_endpoint("10.0.0.1:4100");
    attempt.set_reached(true);
    attempt.set_interface("eth0");
    attempt.set_local_address("10.0.0.2");
    for (const auto use : {pb::MarkedFolder::STATE, pb::MarkedFolder::CWD}) {
      info_.listen->add_folders()->set_use(use);
      info_.nodes[1].reach->add_folders()->set_use(use);
    }
  }

  pb::NodeInfo& Report(size_t node) { return *info_.nodes[node].report; }

  // Returns the findings whose level is not ok.
  std::vector<Finding> Bad() const {
    std::vector<Finding> findings = Diagnose(info_);
    std::erase_if(findings, [](const Finding& finding) { return finding.level == Level::kOk; });
    return findings;
  }
  // Returns the findings that are not ok, one per line, as "node level check: seen -> hint".
  std::string TheBad() const {
    constexpr const char* kLevels[] = {"ok", "warn", "fail"};
    std::string text;
    for (const Finding& finding : Bad()) {
      EXPECT_NE(finding.hint, "") << finding.check;
      text += (text.empty() ? "" : "\n") + finding.node + " " +
              kLevels[static_cast<size_t>(finding.level)] + " " + finding.check + ": " +
              finding.seen + " -> " + finding.hint;
    }
    return text;
  }
  std::string Table() const { return DoctorTable(info_, Diagnose(info_)); }

  DoctorInfo info_;
};

TEST_F(DoctorReportTest, ShowsNewestCopyOfRunningJob) {
  JobView job;
  job.record.job_id = "20261128-101500-abcdef";
  job.step = 31;
  job.total_steps = 100;
  job.copy = {20, 1'000'000};
  info_.jobs = {job};
  info_.now_unix_ms = 1'012'000;
  EXPECT_THAT(Table(), HasSubstr("all    ok    running job: 20261128-101500-abcdef, step 31/100, "
                                 "copy in memory: step 20, 12 s ago\n"));
  EXPECT_EQ(TheBad(), "");
}

TEST_F(DoctorReportTest, PrintsOneLineForEachHealthyNode) {
  EXPECT_EQ(TheBad(), "");
  EXPECT_FALSE(AnyFails(Diagnose(info_)));
  EXPECT_EQ(Table(),
            "node1  ok    8 cores, 32 GiB, no GPU, 100 GiB free, clock +0 ms, rendezvous\n"
            "node2  ok    8 cores, 32 GiB, no GPU, 100 GiB free, clock +0 ms, reaches node1 "
            "through eth0\n"
            "all    ok    state folder: each node has its own\n"
            "all    ok    working directory: each node has its own\n"
            "All is well on 2 nodes\n");
}

TEST_F(DoctorReportTest, NamesFailedStepAndCompletedSteps) {
  DoctorNode& node = info_.nodes[1];
  node.report.reset();
  node.reach.reset();
  node.steps = {"resolve", "connect", "handshake", "host key"};
  node.failed_step = "login";
  node.failure =
      "node 'node2' (root@node2 port 22): login refused; the server offers publickey; put a "
      "public key there";
  EXPECT_EQ(TheBad(),
            "node2 fail login: login refused; the server offers publickey -> put a public key "
            "there");
  EXPECT_TRUE(AnyFails(Diagnose(info_)));
  EXPECT_THAT(Table(), HasSubstr("node2  FAIL  login: login refused; the server offers publickey\n"
                                 "             -> put a public key there\n"
                                 "             done before: resolve, connect, handshake, host "
                                 "key\n"));
  EXPECT_THAT(Table(), HasSubstr("1 of 2 nodes fails\n"));
}

TEST_F(DoctorReportTest, FailsIfNodeLacksPythonEnvironment) {
  info_.python_folder = "/venv";
  for (size_t i = 0; i < 2; ++i) {
    pb::InstalledProgram& python = *Report(i).add_programs();
    python.set_name("python");
    python.set_path("/venv/bin/python3");
    python.set_said("Python 3.11.2");
    python.set_state(i == 0 ? pb::InstalledProgram::WORKS : pb::InstalledProgram::MISSING);
  }
  EXPECT_EQ(TheBad(),
            "node2 fail python: the Python environment /venv of this machine is not there: no "
            "/venv/bin/python3 -> make it there at the same path, share its folder, or deactivate "
            "it here if no rank needs it");
  Report(1).mutable_programs()->rbegin()->set_state(pb::InstalledProgram::BROKEN);
  EXPECT_THAT(TheBad(), HasSubstr("/venv/bin/python3 does not start: Python 3.11.2"));
}

TEST_F(DoctorReportTest, AddsDefaultHintToFailure) {
  info_.nodes[1].report.reset();
  info_.nodes[1].failed_step = "copy agent";
  info_.nodes[1].failure = "the agent could not be installed; it printed: is the disk full?";
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("node2 fail copy agent: the agent could not be installed; "
                                        "it printed: is the disk full? -> "),
                              HasSubstr("~/.cache/dslaunch")));
}

TEST_F(DoctorReportTest, FailsIfAgentVersionsDiffer) {
  Report(1).set_build_id("def");
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("node2 fail version"), HasSubstr("def"),
                              HasSubstr("~/.cache/dslaunch")));
}

TEST_F(DoctorReportTest, WarnsAboutOtherInstalledVersion) {
  pb::InstalledProgram& program = *Report(1).add_programs();
  program.set_name("dslaunch");
  program.set_path("/usr/bin/dslaunch");
  program.set_state(pb::InstalledProgram::WORKS);
  program.set_said("dslaunch 0.9");
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn version: /usr/bin/dslaunch is dslaunch 0.9 there, "
                                  "1.0 here"));
}

TEST_F(DoctorReportTest, FailsIfTwoNamesAreOneMachine) {
  Report(1).set_identity("node1");
  EXPECT_THAT(TheBad(),
              HasSubstr("node2 fail same machine: it is the same machine as node1 -> keep one"));
}

TEST_F(DoctorReportTest, WarnsAboutFewCoresAndLittleMemory) {
  Report(0).set_cores(1);
  EXPECT_THAT(TheBad(), HasSubstr("node1 warn cores: 1 core for 2 slots"));
  Report(0).set_cores(2);
  Report(0).set_memory_available_bytes(kGiB / 4);
  EXPECT_THAT(TheBad(), HasSubstr("node1 warn memory: 32 GiB, 256 MiB available"));
}

TEST_F(DoctorReportTest, FailsIfNodeHasFewerGpusThanSlots) {
  AddGpus(Report(0), 2);
  EXPECT_THAT(TheBad(), HasSubstr("node2 fail gpus: 0 usable GPUs for 2 slots"));
  info_.device = DeviceChoice::kCpu;
  EXPECT_EQ(TheBad(), "");
  info_.device = DeviceChoice::kCuda;
  AddGpus(Report(1), 2);
  EXPECT_EQ(TheBad(), "");
  Report(1).mutable_gpus()->set_visible(1);
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("1 usable GPU, of 2 installed for 2 slots"),
                              HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST_F(DoctorReportTest, WarnsAboutGpuDriversAndMemoryInUse) {
  info_.nodes.push_back(info_.nodes[1]);
  info_.nodes[2].name = "node3";
  Report(2).set_identity("node3");
  AddGpus(Report(0), 2, "570.1");
  AddGpus(Report(1), 2);
  AddGpus(Report(2), 2);
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("node1 warn gpu driver: 570.1, other nodes have 580.82"),
                              Not(HasSubstr("node2"))));
  Report(0).mutable_gpus()->set_driver("580.82");
  Report(0).mutable_gpus()->set_trouble("nvmlInit_v2: Driver/library version mismatch");
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("node1 warn gpu driver"), HasSubstr("mismatch")));
  Report(0).mutable_gpus()->clear_trouble();
  Report(0).mutable_gpus()->mutable_installed(1)->set_memory_used_bytes(40 * kGiB);
  EXPECT_THAT(TheBad(), HasSubstr("node1 warn gpu memory: GPU 1 has 40 GiB in use"));
}

TEST_F(DoctorReportTest, MissingTrainerFailsOnlyIfNeeded) {
  for (const size_t node : {0u, 1u}) {
    pb::InstalledProgram& program = *Report(node).add_programs();
    program.set_name("dslaunch-train");
    program.set_path("/opt/bin/dslaunch-train");
  }
  EXPECT_EQ(TheBad(), "") << "it is not installed here either";
  for (const size_t node : {0u, 1u}) {
    Report(node).mutable_programs(0)->set_state(pb::InstalledProgram::BROKEN);
    Report(node).mutable_programs(0)->set_said("libtorch.so: cannot open shared object file");
  }
  EXPECT_EQ(TheBad(), "") << "pip installs it without LibTorch";
  info_.trainer_needed = true;
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("node1 fail trainer: /opt/bin/dslaunch-train does not "),
                              HasSubstr("pip install 'dslaunch[train]'")));
  info_.trainer_needed = false;
  Report(1).mutable_programs(0)->set_state(pb::InstalledProgram::MISSING);
  info_.has_trainer = true;
  pb::InstalledProgram& here = *Report(0).mutable_programs(0);
  pb::InstalledProgram& there = *Report(1).mutable_programs(0);
  here.set_state(pb::InstalledProgram::WORKS);
  here.set_said("dslaunch-train 1.0, LibTorch 2.11.0");
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn trainer: no /opt/bin/dslaunch-train"));
  info_.trainer_needed = true;
  EXPECT_THAT(TheBad(), HasSubstr("node2 fail trainer: no /opt/bin/dslaunch-train"));
  info_.trainer_needed = false;
  there.set_state(pb::InstalledProgram::BROKEN);
  there.set_said("libtorch_cpu.so: cannot open shared object file");
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn trainer: /opt/bin/dslaunch-train does not start: "
                                  "libtorch_cpu.so"));
  there.set_state(pb::InstalledProgram::WORKS);
  there.set_said("dslaunch-train 1.0, LibTorch 2.10.0");
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn trainer: dslaunch-train 1.0, LibTorch 2.10.0, other "
                                  "nodes have dslaunch-train 1.0, LibTorch 2.11.0"));
}

TEST_F(DoctorReportTest, ReportsProgramThatCannotStart) {
  for (const size_t node : {0u, 1u}) {
    Report(node).mutable_found_program()->set_executable("/usr/bin/python3");
    Report(node).mutable_found_program()->set_said("Python 3.11.2");
  }
  EXPECT_EQ(TheBad(), "");
  EXPECT_THAT(Table(), HasSubstr("runs /usr/bin/python3 (Python 3.11.2)"));
  Report(1).mutable_found_program()->set_said("Python 3.9.2");
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn program: /usr/bin/python3, Python 3.9.2; other nodes "
                                  "have Python 3.11.2"));
  info_.nodes[1].reach->mutable_folders(1)->set_trouble("No such file or directory");
  Report(1).mutable_found_program()->set_failure(
      "working directory /work does not exist there; name one with --chdir");
  EXPECT_EQ(TheBad(),
            "node2 fail program: working directory /work does not exist there -> name one with "
            "--chdir");
  Report(1).mutable_found_program()->set_failure("script 't.py': No such file or directory");
  EXPECT_THAT(TheBad(), HasSubstr("-> give a path that every node has, or copy it with --copy"));
}

TEST_F(DoctorReportTest, NamesClockThatDiffersFromOthers) {
  info_.nodes[1].clock_ahead_us = -3'400'000;
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn clock: it is -3.4 s off"));
  info_.nodes[1].clock_error_us = 3'000'000;
  EXPECT_EQ(TheBad(), "") << "it may as well be the network";
  info_.nodes[1].clock_error_us = 1000;
  info_.nodes[0].clock_ahead_us = -3'400'000;
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("this machine warn clock: it is +3.4 s off"),
                              Not(HasSubstr("node"))));
  info_.nodes[0].clock_ahead_us = 0;
  info_.nodes[1].clock_ahead_us = int64_t{30} * 3600 * 1'000'000;
  EXPECT_THAT(TheBad(), HasSubstr("node2 fail clock: it is +30 h off: the job's certificates"));
}

TEST_F(DoctorReportTest, WarnsAboutFullDiskAndFailsIfNotWritable) {
  Report(0).mutable_disks(0)->set_free_bytes(kGiB / 2);
  EXPECT_THAT(TheBad(), HasSubstr("node1 warn disk: 512 MiB of 200 GiB free in /home/a"));
  Report(0).mutable_disks(0)->set_trouble("No space left on device");
  EXPECT_THAT(TheBad(), HasSubstr("node1 fail disk: nothing can be written in /home/a: No space"));
  Report(0).mutable_disks(0)->clear_trouble();
  Report(0).mutable_disks(0)->set_free_bytes(kGiB);
  Report(0).mutable_disks(1)->set_free_bytes(64 << 20);
  EXPECT_THAT(TheBad(), AllOf(HasSubstr("node1 warn shared memory: 64 MiB"), HasSubstr("shm")));
}

TEST_F(DoctorReportTest, ReportsLimitsThatSlotsExceed) {
  Report(1).mutable_open_files()->set_soft(64);
  EXPECT_THAT(TheBad(),
              AllOf(HasSubstr("node2 fail open files: the limit is 64"), HasSubstr("ulimit -n")));
  Report(1).mutable_open_files()->set_hard(64);
  EXPECT_THAT(TheBad(), HasSubstr("limits.conf"));
  Report(1).mutable_open_files()->set_soft(1024);
  Report(1).mutable_processes()->set_soft(100);
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn processes: the limit is 100"));
  Report(1).mutable_processes()->set_soft(UINT64_MAX);
  Report(1).mutable_locked_memory()->set_soft(65536);
  EXPECT_EQ(TheBad(), "");
  Report(1).set_infiniband(true);
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn locked memory"));
}

TEST_F(DoctorReportTest, FailsWithAddressesIfRendezvousUnreachable) {
  pb::ReachResult& attempt = *info_.nodes[1].reach->mutable_results(0);
  attempt.set_reached(false);
  attempt.set_trouble("no answer");
  EXPECT_THAT(TheBad(),
              AllOf(HasSubstr("node2 fail network: it cannot reach node1"),
                    HasSubstr("10.0.0.1:4100 through eth0: no answer"), HasSubstr("firewall")));
  pb::ReachResult& other = *info_.nodes[1].reach->add_results();
  other.set_endpoint("10.1.0.1:4100");
  other.set_interface("ib0");
  other.set_reached(true);
  EXPECT_EQ(TheBad(), "");
  EXPECT_THAT(Table(), HasSubstr("reaches node1 through ib0"));
  info_.nodes[1].reach.reset();
  info_.nodes[1].reach_failure = "node2: its agent did not answer in time; try again";
  EXPECT_THAT(TheBad(), HasSubstr("node2 fail network"));
  info_.nodes[1].reach_failure.clear();
  info_.listen->clear_endpoints();
  EXPECT_THAT(TheBad(), HasSubstr("node1 fail network: it has no address"));
}

TEST_F(DoctorReportTest, ReportsSharedAndMissingFolders) {
  info_.nodes[1].reach->mutable_folders(0)->set_seen(true);
  EXPECT_THAT(Table(), HasSubstr("all    ok    state folder: shared by all nodes\n"));
  info_.nodes[1].reach->mutable_folders(1)->set_trouble("No such file or directory");
  EXPECT_THAT(TheBad(), HasSubstr("node2 warn directory: /work: No such file or directory"));
  EXPECT_THAT(Table(), Not(HasSubstr("working directory:")));
}

TEST_F(DoctorReportTest, SanitizesTextFromNodes) {
  info_.nodes[1].report.reset();
  info_.nodes[1].failed_step = "login";
  info_.nodes[1].failure = "it printed \033[2J; go\033]0;x\007 away";
  EXPECT_THAT(Table(), AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\007"))));
}

TEST_F(DoctorReportTest, JsonContainsAnswersAndFindings) {
  AddGpus(Report(0), 2);
  info_.nodes[1].clock_ahead_us = 1500;
  Report(0).mutable_processes()->set_soft(UINT64_MAX);
  const auto json = nlohmann::json::parse(DoctorJson(info_, Diagnose(info_)));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["rendezvous"]["node"], "node1");
  EXPECT_EQ(json["nodes"][0]["info"]["gpus"].size(), 2u);
  EXPECT_EQ(json["nodes"][0]["info"]["processes"]["soft"], nullptr);
  EXPECT_EQ(json["nodes"][1]["clock_ahead_us"], 1500);
  EXPECT_EQ(json["nodes"][1]["reach"][0]["interface"], "eth0");
  bool found = false;
  for (const auto& finding : json["findings"])
    found = found || (finding["node"] == "node2" && finding["check"] == "gpus" &&
                      finding["level"] == "fail" && finding["hint"] != "");
  EXPECT_TRUE(found);
}

TEST(SplitAtHintTest, RemovesNodeNameAndSplitsLastClause) {
  const SplitMessage split =
      SplitAtHint("node 'a' (root@a port 22): cannot connect (x); nothing; check it");
  EXPECT_EQ(split.seen, "cannot connect (x); nothing");
  EXPECT_EQ(split.hint, "check it");
  EXPECT_EQ(SplitAtHint("what; it printed: no; really").hint, "really");
  EXPECT_EQ(SplitAtHint("what; it printed: is the disk full?").seen,
            "what; it printed: is the disk full?");
  EXPECT_EQ(SplitAtHint("no way out").seen, "no way out");
  EXPECT_EQ(SplitAtHint("no way out").hint, "");
}

}  // namespace
}  // namespace dslaunch::doctor_report_test
