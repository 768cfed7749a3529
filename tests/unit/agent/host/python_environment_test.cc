#include "agent/host/python_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::python_environment_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class PythonEnvironmentTest : public ::testing::Test {
 protected:
  PythonEnvironmentTest() {
    std::filesystem::create_directories(dir_ / "venv/bin");
    program_.set_form(pb::Program::SCRIPT);
    pb::PythonEnvironment& python = *program_.mutable_python_environment();
    python.set_folder(dir_ / "venv");
    python.set_variable("VIRTUAL_ENV");
    python.set_need(pb::PythonEnvironment::YES);
    python.set_in_path(true);
  }
  Result<PythonPlace> Enter() { return EnterPythonEnvironment(program_, environment_, "node2"); }
  void MakeInterpreter() { dir_.Write("venv/bin/python3", "#!/bin/sh\n", true); }

  TempDir dir_;
  pb::Program program_;
  Environment environment_ = {"PATH=/usr/bin:/bin"};
};

TEST_F(PythonEnvironmentTest, EntersTheActiveEnvironment) {
  MakeInterpreter();
  const auto place = Enter();
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_STREQ(FindVariable(place->environment, "VIRTUAL_ENV"), (dir_ / "venv").c_str());
  EXPECT_EQ(FindVariable(place->environment, "PATH"), (dir_ / "venv/bin") + ":/usr/bin:/bin");
  EXPECT_EQ(place->notice, "");
  program_.mutable_python_environment()->set_variable("CONDA_PREFIX");
  EXPECT_STREQ(FindVariable(Enter()->environment, "CONDA_PREFIX"), (dir_ / "venv").c_str());
}

TEST_F(PythonEnvironmentTest, ChangesPathOnlyIfTheFrontEndsHasTheFolder) {
  MakeInterpreter();
  program_.mutable_python_environment()->set_in_path(false);
  EXPECT_STREQ(FindVariable(Enter()->environment, "PATH"), "/usr/bin:/bin");
  program_.mutable_python_environment()->set_in_path(true);
  program_.add_chosen_env()->set_name("PATH");
  EXPECT_STREQ(FindVariable(Enter()->environment, "PATH"), "/usr/bin:/bin") << "the user's own";
}

TEST_F(PythonEnvironmentTest, RejectsNodeWithoutRequiredEnvironment) {
  const auto missing = Enter();
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kNotFound);
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("node2: the Python environment " + (dir_ / "venv") +
                              ", which is active here, cannot be used there: "),
                    HasSubstr("/bin/python3: No such file"), HasSubstr("-x PYTHON_EXEC=python3")));
  program_.set_form(pb::Program::PLAIN);
  EXPECT_THAT(Enter().error().message, HasSubstr("deactivate it here"));
  std::filesystem::create_symlink("/no/such/python3.9", dir_ / "venv/bin/python3");
  EXPECT_THAT(Enter().error().message, HasSubstr("is a link to /no/such/python3.9"));
  program_.mutable_python_environment()->set_variable("");
  EXPECT_THAT(Enter().error().message, HasSubstr("in which dslaunch is installed here"));
}

TEST_F(PythonEnvironmentTest, ReportsNodeWithoutOptionalEnvironment) {
  program_.mutable_python_environment()->set_need(pb::PythonEnvironment::PERHAPS);
  EXPECT_THAT(Enter()->notice, HasSubstr("node2: the Python environment "));
  EXPECT_THAT(Enter()->environment, Not(Contains(HasSubstr("VIRTUAL_ENV"))));
  program_.mutable_python_environment()->set_need(pb::PythonEnvironment::NO);
  EXPECT_EQ(Enter()->notice, "");
}

TEST_F(PythonEnvironmentTest, KeepsTheNodesOwnEnvironmentAndReportsIt) {
  MakeInterpreter();
  environment_.push_back("VIRTUAL_ENV=/opt/own");
  EXPECT_EQ(Enter()->environment, environment_);
  EXPECT_THAT(Enter()->notice, HasSubstr("node2: VIRTUAL_ENV is /opt/own there"));
  environment_.back() = "VIRTUAL_ENV=" + (dir_ / "venv");
  EXPECT_EQ(Enter()->environment, environment_) << "it is in it already";
  EXPECT_EQ(Enter()->notice, "");
}

TEST_F(PythonEnvironmentTest, FindsTheInterpreterOfAProgram) {
  EXPECT_EQ(PythonInterpreterOf("/opt/bin/python3.12", {}), "/opt/bin/python3.12");
  EXPECT_EQ(PythonInterpreterOf("/usr/bin/true", {}), "");
  const std::string tool = dir_.Write("tool", "#! /opt/v/bin/python3 -s\nimport x\n", true);
  EXPECT_EQ(PythonInterpreterOf(tool, {}), "/opt/v/bin/python3");
  MakeInterpreter();
  const Environment path = {"PATH=" + (dir_ / "venv/bin")};
  for (const char* line : {"#!/usr/bin/env python3\n", "#!/usr/bin/env -S python3 -u\n"})
    EXPECT_EQ(PythonInterpreterOf(dir_.Write("by_env", line, true), path),
              dir_ / "venv/bin/python3");
  EXPECT_EQ(PythonInterpreterOf(dir_.Write("sh", "#!/bin/sh\n", true), path), "");
  EXPECT_EQ(PythonInterpreterOf(dir_.Write("empty", "#!"), path), "");
}

}  // namespace
}  // namespace dslaunch::python_environment_test
