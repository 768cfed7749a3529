#include "agent/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProgramTest : public ::testing::Test {
 protected:
  Result<ResolvedProgram> Resolve(const std::vector<std::string>& argv, bool python = false) {
    pb::Program program;
    for (const std::string& argument : argv) program.add_argv(argument);
    program.set_cwd(dir_.path());
    program.set_python(python);
    return ResolveProgram(program, environment_, "node2");
  }

  TempDir dir_;
  Environment environment_ = {"PATH=/nonexistent:/usr/bin:/bin"};
};

TEST_F(ProgramTest, FindsPlainNamesInPath) {
  EXPECT_THAT(Resolve({"true", "-x"})->argv, ElementsAre("/usr/bin/true", "-x"));
}

TEST_F(ProgramTest, APathIsRelativeToTheWorkingDirectory) {
  const std::string file = dir_.Write("run", "#!/bin/sh\n", true);
  EXPECT_THAT(Resolve({"./run", "", "a b"})->argv, ElementsAre(dir_.path() + "/./run", "", "a b"));
  EXPECT_THAT(Resolve({file})->argv, ElementsAre(file));
}

TEST_F(ProgramTest, MissingProgramsAreExit127AndNameTheNode) {
  for (const char* name : {"no-such-program", "./no-such-program", "/no/such/program"}) {
    const auto program = Resolve({name});
    ASSERT_FALSE(program.ok()) << name;
    EXPECT_EQ(program.error().code, ExitCode::kNotFound);
    EXPECT_THAT(program.error().message, HasSubstr("node2"));
    EXPECT_THAT(program.error().message, HasSubstr(name));
  }
}

TEST_F(ProgramTest, WhatCannotRunIsExit126) {
  const std::string file = dir_.Write("data", "x");
  for (const std::string& name : {file, dir_.path()}) {
    const auto program = Resolve({name});
    ASSERT_FALSE(program.ok()) << name;
    EXPECT_EQ(program.error().code, ExitCode::kCannotExecute);
  }
}

TEST_F(ProgramTest, PythonScriptsGetTheChosenInterpreter) {
  dir_.Write("train.py", "");
  EXPECT_THAT(Resolve({"train.py", "--lr", "1"}, true)->argv,
              ElementsAre("/usr/bin/python3", "train.py", "--lr", "1"));
  environment_.push_back("PYTHON_EXEC=/bin/true");
  EXPECT_EQ(Resolve({"train.py"}, true)->argv[0], "/bin/true");
  EXPECT_EQ(Resolve({"missing.py"}, true).error().code, ExitCode::kNotFound);
}

TEST_F(ProgramTest, AMissingWorkingDirectoryIsNamed) {
  pb::Program program;
  program.add_argv("true");
  program.set_cwd("/no/such/folder");
  const auto resolved = ResolveProgram(program, environment_, "node2");
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.error().code, ExitCode::kBadInput);
  EXPECT_THAT(resolved.error().message, HasSubstr("node2: working directory /no/such/folder"));
}

TEST(EnvironmentTest, OverridesReplaceByteForByteAndNewNamesAreAdded) {
  google::protobuf::RepeatedPtrField<pb::EnvVar> overrides;
  const auto add = [&](const char* name, const char* value) {
    overrides.Add()->set_name(name);
    overrides.rbegin()->set_value(value);
  };
  add("A", "$(id) \"x\"\n");
  add("C", "");
  const Environment merged = MergeEnvironment({"A=1", "AB=2"}, overrides);
  EXPECT_THAT(merged, ElementsAre("A=$(id) \"x\"\n", "AB=2", "C="));
  EXPECT_STREQ(FindVariable(merged, "AB"), "2");
  EXPECT_EQ(FindVariable(merged, "B"), nullptr);
}

}  // namespace
}  // namespace dslaunch
