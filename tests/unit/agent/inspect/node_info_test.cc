#include "agent/inspect/node_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "proto/contract/accelerate_config.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::node_info_test {
namespace {

using ::testing::HasSubstr;

class NodeInfoTest : public ::testing::Test {
 protected:
  NodeInfoTest() {
    if (const char* folder = std::getenv("XDG_STATE_HOME")) before_ = folder;
    ::setenv("XDG_STATE_HOME", (dir_ / "state").c_str(), 1);
    request_.set_patience_ms(5000);
  }
  ~NodeInfoTest() override {
    before_ ? ::setenv("XDG_STATE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_STATE_HOME");
  }

  TempDir dir_;
  pb::NodeInfoRequest request_;
  std::optional<std::string> before_;
};

TEST_F(NodeInfoTest, ReportsFactsAboutThisMachine) {
  const pb::NodeInfo report = GetNodeInfo(request_);
  EXPECT_NE(report.version(), "");
  EXPECT_THAT(report.system(), HasSubstr("Linux"));
  EXPECT_EQ(report.boot_id().size(), 36u);
  EXPECT_GE(report.cores(), 1u);
  EXPECT_GT(report.memory_bytes(), 0u);
  EXPECT_GE(report.memory_bytes(), report.memory_available_bytes());
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(report.open_files().soft(), limit.rlim_cur);
  EXPECT_EQ(report.programs_size(), 0) << "nobody asked for them";
}

TEST_F(NodeInfoTest, TestsStateFolderWithoutLeavingFiles) {
  EXPECT_EQ(NearestToJobsFolder(), dir_.path());
  const pb::NodeInfo report = GetNodeInfo(request_);
  ASSERT_GE(report.disks_size(), 1);
  EXPECT_EQ(report.disks(0).path(), dir_.path());
  EXPECT_EQ(report.disks(0).trouble(), "");
  EXPECT_GT(report.disks(0).free_bytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  std::filesystem::create_directories(dir_ / "state/dslaunch/jobs");
  EXPECT_EQ(NearestToJobsFolder(), dir_ / "state/dslaunch/jobs");
}

TEST_F(NodeInfoTest, FindsProgramLikeAJob) {
  EXPECT_FALSE(GetNodeInfo(request_).has_found_program());
  pb::Program& program = *request_.mutable_program();
  program.set_cwd(dir_.path());
  program.set_form(pb::Program::SCRIPT);
  program.add_argv("t.py");
  pb::EnvVar& python = *program.add_chosen_env();
  python.set_name("PYTHON_EXEC");
  python.set_value(dir_.Write("python", "#!/bin/sh\necho Python 3.99\n", /*executable=*/true));
  EXPECT_THAT(GetNodeInfo(request_).found_program().failure(),
              ::testing::StartsWith("script 't.py': No such file"));
  dir_.Write("t.py", "");
  EXPECT_EQ(GetNodeInfo(request_).found_program().said(), "Python 3.99");
  EXPECT_EQ(GetNodeInfo(request_).found_program().executable(), python.value());
  python.set_value("/no/python3");
  EXPECT_THAT(GetNodeInfo(request_).found_program().failure(), HasSubstr("/no/python3"));
  program.set_cwd("/no/such");
  EXPECT_THAT(GetNodeInfo(request_).found_program().failure(),
              ::testing::StartsWith("working directory /no/such does not exist"));
}

TEST_F(NodeInfoTest, TriesAcceleratesConfiguration) {
  pb::Program& program = *request_.mutable_program();
  program.set_cwd(dir_.path());
  program.add_argv("true");
  program.add_chosen_env()->set_name(kAccelerateConfigVariable);
  pb::EnvVar& python = *program.add_chosen_env();
  python.set_name("PYTHON_EXEC");
  python.set_value(dir_.Write("python",
                              "#!/bin/sh\necho noise\necho cannot import accelerate\nexit 65\n",
                              /*executable=*/true));
  EXPECT_EQ(GetNodeInfo(request_).found_program().failure(), "cannot import accelerate");
  python.set_value(dir_.Write("good", "#!/bin/sh\nexec $3\n", /*executable=*/true));
  EXPECT_EQ(GetNodeInfo(request_).found_program().failure(), "");
}

TEST_F(NodeInfoTest, ReportsProgramsThatWorkAreMissingOrBroken) {
  request_.set_bin_dir(dir_.path());
  dir_.Write("dslaunch", "#!/bin/sh\necho \"dslaunch 9.9 $1\"\n", true);
  pb::NodeInfo report = GetNodeInfo(request_);
  ASSERT_EQ(report.programs_size(), 2);
  EXPECT_EQ(report.programs(0).state(), pb::InstalledProgram::WORKS);
  EXPECT_EQ(report.programs(0).said(), "dslaunch 9.9 --version");
  EXPECT_EQ(report.programs(1).name(), "dslaunch-train");
  EXPECT_EQ(report.programs(1).state(), pb::InstalledProgram::MISSING);

  dir_.Write(
      "dslaunch-train",
      "#!/bin/sh\necho 'libtorch_cpu.so: cannot open \033[31m shared object' >&2\nexit 127\n",
      true);
  report = GetNodeInfo(request_);
  EXPECT_EQ(report.programs(1).state(), pb::InstalledProgram::BROKEN);
  EXPECT_EQ(report.programs(1).said(), "libtorch_cpu.so: cannot open  shared object");
}

}  // namespace
}  // namespace dslaunch::node_info_test
