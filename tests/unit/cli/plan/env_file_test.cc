#include "cli/plan/env_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/plan/safe_variables.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::env_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

TEST(EnvFileTest, ReadsNamesAndLiteralValues) {
  const auto file = ParseEnvFile(
      "# a comment\n\nA=1\n  B = two words \r\nexport C=x=y\nD=\nA=2\nE=64(x2)\nF=a\\b'c\"d&;|*",
      "f");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_THAT(file->variables,
              ElementsAre(Pair("A", "1"), Pair("B", "two words"), Pair("C", "x=y"), Pair("D", ""),
                          Pair("A", "2"), Pair("E", "64(x2)"), Pair("F", "a\\b'c\"d&;|*")));
  EXPECT_THAT(file->notices, IsEmpty());
}

TEST(EnvFileTest, KeepsBytesThatAreNotUtf8) {
  const auto file = ParseEnvFile("A=\xff\xfe\x01z\n", "f");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->variables, ElementsAre(Pair("A", "\xff\xfe\x01z")));
}

TEST(EnvFileTest, RejectsInvalidNamesWithLine) {
  const std::pair<std::string, const char*> bad[] = {
      {"A=1\nNCCL_DEBUG INFO\n", "f:2: 'NCCL_DEBUG': there is no '='"},
      {"=x", "f:1: '': no name"},
      {"2A=x", "f:1: '2A': no name"},
      {"\n\nA B=x", "f:3: 'A B': no name"},
      {"TOKEN s3cret", "f:1: 'TOKEN': there is no '='"},
      {"KEY=-----BEGIN\nMIIEpAIBs3cret", "f:2: there is no '='"},
      {"KEY=-----BEGIN\nMIIEs3cret+/==", "f:2: no name"},
      {std::string("A=x\0y", 5), "f:1: 'A': its value has a NUL"}};
  for (const auto& [text, message] : bad) {
    const auto file = ParseEnvFile(text, "f");
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_EQ(file.error().code, ExitCode::kBadInput);
    EXPECT_THAT(file.error().message, HasSubstr(message));
    EXPECT_THAT(file.error().message, Not(HasSubstr("s3cret")));
  }
}

TEST(EnvFileTest, ReportsValuesThatShellWouldExpand) {
  const auto file = ParseEnvFile(
      "PATH=/opt/x:$PATH\nA=${HOME}\nB=$(id)\nC=`id`\nD=5$\nE=\"x y\"\nF='z'\nG=$ x\nH=\"\n", "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->variables[0].second, "/opt/x:$PATH");
  EXPECT_THAT(file->notices,
              ElementsAre(HasSubstr("f:1: PATH is used literally"), HasSubstr("f:2: A"),
                          HasSubstr("f:3: B"), HasSubstr("f:4: C")));
  EXPECT_THAT(file->notices[0], HasSubstr("--venv_script"));
}

TEST(EnvFileTest, RemovesOnePairOfEnclosingQuotes) {
  const auto file = ParseEnvFile(
      "A=\"value\"\nB='x y'\nC=\"\"\nD=\"'x'\"\nE=\"a\" and \"b\"\nF=\"\nG={\"a\": \"b\"}\n"
      "H=\"{\\\"a\\\": 1, \\d}\"\nI='\\\"$HOME'\nJ=\"x\\\"\nexport K=\"v\"\nL=\"5\\$x\"",
      "f");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->variables, ElementsAre(Pair("A", "value"), Pair("B", "x y"), Pair("C", ""),
                                           Pair("D", "'x'"), Pair("E", "\"a\" and \"b\""),
                                           Pair("F", "\""), Pair("G", "{\"a\": \"b\"}"),
                                           Pair("H", "{\"a\": 1, \\d}"), Pair("I", "\\\"$HOME"),
                                           Pair("J", "\"x\\\""), Pair("K", "v"), Pair("L", "5$x")));
  EXPECT_THAT(file->notices, IsEmpty());
}

class ReadEnvFilesTest : public ::testing::Test {
 protected:
  ReadEnvFilesTest() {
    std::filesystem::create_directory(dir_ / "home");
    std::filesystem::create_directory(dir_ / "cwd");
  }
  Result<std::vector<EnvFile>> Read(std::vector<std::string> environment = {},
                                    bool runs_code_of_cwd = false) {
    environment.push_back("HOME=" + (dir_ / "home"));
    return ReadEnvFiles(environment, dir_ / "cwd", runs_code_of_cwd);
  }
  TempDir dir_;
};

TEST_F(ReadEnvFilesTest, ReadsHomeFolderBeforeWorkingDirectory) {
  EXPECT_THAT(*Read(), IsEmpty());
  dir_.Write("cwd/.deepspeed_env", "TZ=cwd");
  dir_.Write("home/.deepspeed_env", "A=home");
  const auto files = Read();
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 2u);
  EXPECT_THAT((*files)[0].variables, ElementsAre(Pair("A", "home")));
  EXPECT_THAT((*files)[1].variables, ElementsAre(Pair("TZ", "cwd")));
}

TEST_F(ReadEnvFilesTest, ReadsFileOfDsEnvFile) {
  dir_.Write("cwd/.deepspeed_env", "TZ=default");
  const std::string other = dir_.Write("cwd/other", "TZ=other");
  EXPECT_THAT((*Read({"DS_ENV_FILE=other"})).at(0).variables, ElementsAre(Pair("TZ", "other")));
  const auto absolute = Read({"DS_ENV_FILE=" + other});
  ASSERT_EQ(absolute->size(), 1u) << "an absolute path is one file";
  EXPECT_THAT(*Read({"DS_ENV_FILE="}), IsEmpty()) << "none at all";
}

TEST_F(ReadEnvFilesTest, ErrorsNameFile) {
  const auto missing = Read({"DS_ENV_FILE=nowhere"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kBadInput);
  EXPECT_THAT(missing.error().message, HasSubstr("DS_ENV_FILE=nowhere"));
  const std::string path = dir_.Write("cwd/.deepspeed_env", "A=1\nB\n");
  EXPECT_THAT(Read().error().message, HasSubstr(path + ":2: 'B'"));
  dir_.Write("cwd/.deepspeed_env", std::string(kMaxEnvFileBytes + 1, '#'));
  EXPECT_THAT(Read().error().message, HasSubstr("larger than 1 MiB"));
}

TEST_F(ReadEnvFilesTest, RefusesUnnamedFileThatOthersMayWrite) {
  for (const char* folder : {"cwd", "home"}) {
    const std::string path = dir_.Write(std::string(folder) + "/.deepspeed_env", "A=1\n");
    std::filesystem::permissions(path, std::filesystem::perms(0666));
    const auto found = Read();
    ASSERT_FALSE(found.ok()) << folder;
    EXPECT_EQ(found.error().code, ExitCode::kBadInput);
    EXPECT_THAT(found.error().message, HasSubstr(path + " may be changed by others (mode 0666)"));
    EXPECT_THAT(found.error().message, HasSubstr("name it: DS_ENV_FILE=" + path));
    EXPECT_TRUE(Read({"DS_ENV_FILE=" + path}).ok());
    std::filesystem::remove(path);
  }
}

TEST_F(ReadEnvFilesTest, WorkingDirectorySetsSafeVariablesOnly) {
  for (const char* name : {"LD_PRELOAD", "PERLLIB", "COMPILER_PATH", "PATH", "MY_SETTING"}) {
    const std::string line = std::string(name) + "=./evil\n";
    const std::string path = dir_.Write("cwd/.deepspeed_env", line);
    const auto found = Read();
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.error().code, ExitCode::kBadInput);
    EXPECT_EQ(found.error().message,
              path + ": " + name +
                  " is not among the variables that dslaunch knows to be harmless, so it is not "
                  "taken from a file in the current folder for a program that is not there; give "
                  "--env " +
                  name +
                  "=VALUE, put it into ~/.deepspeed_env, or name the file: DS_ENV_FILE=" + path);
    EXPECT_FALSE(Read({"DS_ENV_FILE=.deepspeed_env"}).ok()) << "found there too";
    EXPECT_TRUE(Read({"DS_ENV_FILE=" + path}).ok());
    EXPECT_TRUE(Read({}, /*runs_code_of_cwd=*/true).ok());
    std::filesystem::remove(path);
    dir_.Write("home/.deepspeed_env", line);
    EXPECT_TRUE(Read().ok()) << "the home folder is the user's own";
    std::filesystem::remove(dir_ / "home/.deepspeed_env");
  }
  dir_.Write("cwd/.deepspeed_env", "NCCL_IB_DISABLE=1\nRANK=7\n");
  EXPECT_TRUE(Read().ok()) << "of RANK each rank has its own";
}

TEST(RunsCodeOfTest, IsTrueForProgramInFolder) {
  TempDir dir;
  std::filesystem::create_directories(dir / "cwd/below");
  for (const char* file : {"cwd/train.py", "cwd/below/run.sh", "cwd/a.out", "outside.py"})
    dir.Write(file, "");
  std::filesystem::create_symlink(dir / "outside.py", dir / "cwd/linked.py");
  const auto runs = [&](std::vector<std::string> program, ProgramForm form = ProgramForm::kAuto) {
    LaunchOptions options;
    options.program = std::move(program);
    options.form = form;
    return RunsCodeOf(dir / "cwd", options);
  };
  EXPECT_TRUE(runs({"train.py", "--lr", "1"}));
  EXPECT_TRUE(runs({"./a.out"}));
  EXPECT_TRUE(runs({dir / "cwd/below/run.sh"}));
  EXPECT_TRUE(runs({"python3", "-u", "train.py"}));
  EXPECT_TRUE(runs({"python3", "-W", "ignore", "train.py"}));
  EXPECT_TRUE(runs({"python3", "-mpackage"}));
  EXPECT_TRUE(runs({"/usr/bin/bash", "below/run.sh"}));
  EXPECT_TRUE(runs({"python", "-m", "package"}));
  EXPECT_TRUE(runs({"package"}, ProgramForm::kModule));
  EXPECT_FALSE(runs({}));
  EXPECT_FALSE(runs({"a.out"})) << "is looked up in PATH";
  EXPECT_FALSE(runs({"cat", "train.py"}));
  EXPECT_FALSE(runs({"python3", "-c", "train.py"}));
  EXPECT_FALSE(runs({"../outside.py"}));
  EXPECT_FALSE(runs({"linked.py"}));
  EXPECT_FALSE(runs({"missing.py"}));
}

TEST(IsSafeVariableTest, IsFalseForVariablesThatLoadCodeOrConnect) {
  for (const char* name : {"",
                           "LD_PRELOAD",
                           "PATH",
                           "HOME",
                           "PERLLIB",
                           "COMPILER_PATH",
                           "XDG_STATE_HOME",
                           "PYTHONPATH",
                           "PYTHONWARNINGS",
                           "PYTHONPYCACHEPREFIX",
                           "PYTHON_EXEC",
                           "BASH_FUNC_ls%%",
                           "GIT_SSH_COMMAND",
                           "NCCL_NET_PLUGIN",
                           "NCCL_CONF_FILE",
                           "NCCL_TOPO_FILE",
                           "NVTX_INJECTION32_PATH",
                           "OMP_TOOL_LIBRARIES",
                           "OMPI_MCA_mca_base_component_path",
                           "TORCH_EXTENSIONS_DIR",
                           "TORCH_LOGS",
                           "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
                           "TRITON_CACHE_DIR",
                           "HF_HOME",
                           "HF_ENDPOINT",
                           "WANDB_BASE_URL",
                           "DSLAUNCH_RECIPE"}) {
    EXPECT_FALSE(IsSafeVariable(name)) << name;
  }
  for (const char* name :
       {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "GLOO_SOCKET_IFNAME",
        "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "PYTHONUNBUFFERED",
        "PYTHONFAULTHANDLER", "TORCH_DISTRIBUTED_DEBUG", "PYTORCH_CUDA_ALLOC_CONF",
        "HF_HUB_OFFLINE", "WANDB_PROJECT", "UCX_TLS", "FI_PROVIDER", "DSLAUNCH_SHM_DISABLE",
        "TZ"}) {
    EXPECT_TRUE(IsSafeVariable(name)) << name;
  }
}

TEST_F(ReadEnvFilesTest, ReportsSecretThatOthersCanRead) {
  const std::string path = dir_.Write("home/.deepspeed_env", "NCCL_DEBUG=INFO\nHF_TOKEN=x\n");
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  EXPECT_THAT((*Read()).at(0).notices,
              ElementsAre(HasSubstr("can be read by other users and holds HF_TOKEN; chmod 600")));
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_THAT((*Read()).at(0).notices, IsEmpty());
  dir_.Write("home/.deepspeed_env", "NCCL_DEBUG=INFO\n");
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  EXPECT_THAT((*Read()).at(0).notices, IsEmpty());
}

TEST_F(ReadEnvFilesTest, ReadsSameFolderOnce) {
  dir_.Write("home/.deepspeed_env", "A=1");
  EXPECT_EQ(ReadEnvFiles({"HOME=" + (dir_ / "home")}, dir_ / "home", false)->size(), 1u);
}

}  // namespace
}  // namespace dslaunch::env_file_test
