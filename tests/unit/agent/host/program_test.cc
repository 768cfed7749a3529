#include "agent/host/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "agent/host/accelerate_module.h"
#include "agent/host/accelerate_program.h"
#include "proto/contract/accelerate_config.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::program_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProgramTest : public ::testing::Test {
 protected:
  Result<ResolvedProgram> Resolve(const std::vector<std::string>& argv,
                                  pb::Program::Form form = pb::Program::PLAIN) {
    pb::Program program = program_;
    for (const std::string& argument : argv) program.add_argv(argument);
    program.set_cwd(dir_.path());
    program.set_form(form);
    return ResolveProgram(program, environment_, "node2");
  }

  TempDir dir_;
  pb::Program program_;  // all fields except the command
  Environment environment_ = {"PATH=/nonexistent:/usr/bin:/bin"};
};

TEST_F(ProgramTest, FindsPlainNamesInPath) {
  EXPECT_THAT(Resolve({"true", "-x"})->argv, ElementsAre("/usr/bin/true", "-x"));
}

TEST_F(ProgramTest, ResolvesPathsInTheWorkingDirectory) {
  const std::string file = dir_.Write("run", "#!/bin/sh\n", true);
  EXPECT_THAT(Resolve({"./run", "", "a b"})->argv, ElementsAre(dir_.path() + "/./run", "", "a b"));
  EXPECT_THAT(Resolve({file})->argv, ElementsAre(file));
}

TEST_F(ProgramTest, MissingProgramIsExit127WithTheNode) {
  for (const char* name : {"no-such-program", "./no-such-program", "/no/such/program"}) {
    const auto program = Resolve({name});
    ASSERT_FALSE(program.ok()) << name;
    EXPECT_EQ(program.error().code, ExitCode::kNotFound);
    EXPECT_THAT(program.error().message, HasSubstr("node2"));
    EXPECT_THAT(program.error().message, HasSubstr(name));
  }
}

TEST_F(ProgramTest, ProgramThatCannotRunIsExit126) {
  const std::string file = dir_.Write("data", "x");
  for (const std::string& name : {file, dir_.path()}) {
    const auto program = Resolve({name});
    ASSERT_FALSE(program.ok()) << name;
    EXPECT_EQ(program.error().code, ExitCode::kCannotExecute);
  }
}

TEST_F(ProgramTest, PythonScriptsGetTheChosenInterpreter) {
  dir_.Write("train.py", "");
  const auto script = pb::Program::SCRIPT;
  EXPECT_THAT(Resolve({"train.py", "--lr", "1"}, script)->argv,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "--lr", "1"));
  environment_.push_back("VIRTUAL_ENV=");
  program_.mutable_python_environment()->set_folder("/no/such");
  EXPECT_THAT(Resolve({"train.py"}, script).error().message, HasSubstr("/no/such/bin/python3"));
  program_.mutable_python_environment()->set_folder("/usr");
  EXPECT_EQ(Resolve({"train.py"}, script)->argv[0], "/usr/bin/python3");
  environment_.pop_back();
  environment_.push_back("VIRTUAL_ENV=" + dir_.path());
  EXPECT_THAT(Resolve({"train.py"}, script).error().message, HasSubstr("/bin/python3"));
  environment_.push_back("PYTHON_EXEC=/bin/true");
  EXPECT_EQ(Resolve({"train.py"}, script)->argv[0], "/bin/true");
  EXPECT_EQ(Resolve({"missing.py"}, script).error().code, ExitCode::kNotFound);
}

TEST_F(ProgramTest, ComposesModulesAndRunPath) {
  EXPECT_THAT(Resolve({"my.module", "x"}, pb::Program::MODULE)->argv,
              ElementsAre("/usr/bin/python3", "-u", "-m", "my.module", "x"));
  dir_.Write("any name", "");
  const auto by_path = Resolve({"any name", "x"}, pb::Program::RUN_PATH);
  ASSERT_TRUE(by_path.ok());
  ASSERT_EQ(by_path->argv.size(), 6u);
  EXPECT_EQ(by_path->argv[2], "-c");
  EXPECT_THAT(by_path->argv[3], HasSubstr("runpy.run_path"));
  EXPECT_EQ(by_path->argv[4], "any name");
  EXPECT_EQ(Resolve({"missing"}, pb::Program::RUN_PATH).error().code, ExitCode::kNotFound);
}

TEST_F(ProgramTest, PassesLocalRankOnlyToScriptsWithThatOption) {
  const std::string with = "p.add_argument('--local-rank')";
  dir_.Write("with.py", with);
  dir_.Write("without.py", "print(1)");
  std::filesystem::create_directories(dir_ / "pkg/sub");
  dir_.Write("pkg/mod.py", with);
  dir_.Write("pkg/sub/__main__.py", with);
  const auto resolved = Resolve({"with.py", "x"}, pb::Program::SCRIPT);
  EXPECT_EQ(resolved->local_rank_option, "--local-rank");
  EXPECT_EQ(resolved->local_rank_at, 3u) << "right after the script";
  EXPECT_EQ(Resolve({"with.py"}, pb::Program::RUN_PATH)->local_rank_at, 5u);
  EXPECT_EQ(Resolve({"with.py"}, pb::Program::RUN_PATH)->local_rank_option, "--local-rank");
  EXPECT_EQ(Resolve({"without.py"}, pb::Program::SCRIPT)->local_rank_option, "");
  EXPECT_EQ(Resolve({"pkg.mod"}, pb::Program::MODULE)->local_rank_option, "--local-rank");
  EXPECT_EQ(Resolve({"pkg.mod"}, pb::Program::MODULE)->local_rank_at, 4u);
  EXPECT_EQ(Resolve({"pkg.sub"}, pb::Program::MODULE)->local_rank_option, "--local-rank");
  EXPECT_EQ(Resolve({"json.tool"}, pb::Program::MODULE)->local_rank_option, "");
  dir_.Write("run", with, true);
  EXPECT_EQ(Resolve({"./run"})->local_rank_option, "") << "no Python program";
  program_.set_no_local_rank(true);
  EXPECT_EQ(Resolve({"with.py"}, pb::Program::SCRIPT)->local_rank_option, "");
}

TEST_F(ProgramTest, StartsProgramByAcceleratesModule) {
  const std::string python = dir_.Write("python", "#!/bin/sh\n", /*executable=*/true);
  environment_.push_back("PYTHON_EXEC=" + python);
  dir_.Write("t.py", "parser.add_argument('--local_rank')\n");
  const auto behind = [&](const ResolvedProgram& resolved) {
    return WithAccelerate(resolved, program_, environment_, "node2");
  };
  const ResolvedProgram script = *Resolve({"t.py", "--lr"}, pb::Program::SCRIPT);
  EXPECT_EQ(behind(script)->argv, script.argv) << "no configuration was sent";
  program_.add_chosen_env()->set_name(kAccelerateConfigVariable);
  const ResolvedProgram wrapped = *behind(script);
  EXPECT_THAT(wrapped.argv,
              ElementsAre(python, "-c", kAccelerateModule, python, "-u", "t.py", "--lr"));
  EXPECT_EQ(wrapped.local_rank_at, script.local_rank_at + 3);
  EXPECT_THAT(behind(*Resolve({"true"}))->argv,
              ElementsAre(python, "-c", kAccelerateModule, "/usr/bin/true"));
  environment_.back() = "PYTHON_EXEC=/no/python3";
  EXPECT_THAT(behind(*Resolve({"true"})).error().message,
              HasSubstr("node2: program '/no/python3'"));
}

TEST_F(ProgramTest, NamesMissingWorkingDirectory) {
  pb::Program program;
  program.add_argv("true");
  program.set_cwd("/no/such/folder");
  const auto resolved = ResolveProgram(program, environment_, "node2");
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.error().code, ExitCode::kBadInput);
  EXPECT_THAT(resolved.error().message, HasSubstr("node2: working directory /no/such/folder"));
}

TEST(EnvironmentTest, OverridesReplaceValuesAndAddNames) {
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
}  // namespace dslaunch::program_test
