#include "agent/host/launcher_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::launcher_use_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

// Returns "NAME begin arguments" and further fields of the launcher that is found in `argv`; "" if
// none is found.
std::string Found(const Words& argv) {
  const std::optional<LauncherUse> use = FindLauncher(argv);
  if (!use) return "";
  std::string text =
      use->name + " " + std::to_string(use->begin) + " " + std::to_string(use->arguments);
  if (!use->python.empty()) text += " by " + use->python;
  for (const std::string& variable : use->variables) text += " " + variable;
  return text + (use->is_wrapped ? " wrapped" : "");
}

TEST(FindLauncherTest, FindsConsoleScriptsByName) {
  EXPECT_EQ(Found({"torchrun", "t.py"}), "torchrun 0 1");
  EXPECT_EQ(Found({"/opt/venv/bin/torchrun", "t.py"}), "/opt/venv/bin/torchrun 0 1");
  EXPECT_EQ(Found({"deepspeed", "t.py"}), "deepspeed 0 1");
  EXPECT_EQ(Found({"accelerate", "launch", "t.py"}), "accelerate launch 0 2");
  EXPECT_EQ(Found({"accelerate-launch", "t.py"}), "accelerate-launch 0 1");
  EXPECT_EQ(Found({"llamafactory-cli", "train", "c.yaml"}), "llamafactory-cli train 0 2");
  EXPECT_EQ(Found({"axolotl", "train", "c.yaml"}), "axolotl train 0 2");
  EXPECT_EQ(Found({"tune", "run", "r"}), "tune run 0 2");
  EXPECT_EQ(Found({"trl", "sft"}), "trl sft 0 2");
  for (const char* name : {"composer", "horovodrun", "mpirun", "mpiexec", "srun", "dslaunch"})
    EXPECT_EQ(Found({name, "-n", "2", "t.py"}), name + std::string(" 0 1"));
}

TEST(FindLauncherTest, FindsModulesOfPython) {
  EXPECT_EQ(Found({"python", "-m", "torch.distributed.run", "t.py"}),
            "python -m torch.distributed.run 0 3 by python");
  EXPECT_EQ(Found({"python3.11", "-u", "-X", "dev", "-m", "torch.distributed.launch", "t.py"}),
            "python3.11 -m torch.distributed.launch 0 6 by python3.11");
  EXPECT_EQ(Found({"python3", "-um", "accelerate.commands.launch", "t.py"}),
            "python3 -m accelerate.commands.launch 0 3 by python3");
  EXPECT_EQ(Found({"python3", "-mtorch.distributed.run", "t.py"}),
            "python3 -m torch.distributed.run 0 2 by python3");
  EXPECT_EQ(Found({"python3", "-m", "accelerate.commands.accelerate_cli", "launch", "t.py"}),
            "python3 -m accelerate.commands.accelerate_cli launch 0 4 by python3");
  EXPECT_EQ(Found({"/v/bin/python", "/v/bin/torchrun", "t.py"}),
            "/v/bin/torchrun 0 2 by /v/bin/python");
}

TEST(FindLauncherTest, FindsLaunchersBehindWrappers) {
  EXPECT_EQ(Found({"env", "X=1", "Y=a/b", "torchrun", "t.py"}), "torchrun 3 4 X=1 Y=a/b");
  EXPECT_EQ(Found({"env", "-u", "X", "torchrun", "t.py"}), "torchrun 3 4 wrapped");
  EXPECT_EQ(Found({"nohup", "nice", "-n", "5", "torchrun", "t.py"}), "torchrun 4 5 wrapped");
  EXPECT_EQ(Found({"timeout", "-k", "5", "10m", "python3", "-m", "torch.distributed.run", "t.py"}),
            "python3 -m torch.distributed.run 4 7 by python3 wrapped");
  EXPECT_EQ(Found({"uv", "run", "--with", "x", "torchrun", "t.py"}), "torchrun 4 5 wrapped");
  EXPECT_EQ(Found({"conda", "run", "-n", "mine", "deepspeed", "t.py"}), "deepspeed 4 5 wrapped");
}

TEST(FindLauncherTest, IgnoresOtherPrograms) {
  const std::vector<Words> others = {{},
                                     {""},
                                     {"t.py", "torchrun"},
                                     {"python3", "t.py", "torchrun"},
                                     {"python3", "-c", "import x", "torchrun"},
                                     {"python3", "-m", "mine", "torch.distributed.run"},
                                     {"python3", "-m"},
                                     {"python3", "-Xm", "torch.distributed.run"},
                                     {"accelerate", "config"},
                                     {"tune", "ls"},
                                     {"axolotl", "preprocess", "c.yaml"},
                                     {"llamafactory-cli", "chat"},
                                     {"trl", "env"},
                                     {"nohup", "./mine", "torchrun"},
                                     {"nohup", "python3", "t.py", "--launcher", "mpirun"},
                                     {"uv", "pip", "install", "torchrun"},
                                     {"uv", "run", "t.py", "torchrun"},
                                     {"torchrunner", "t.py"},
                                     {"python-config"},
                                     {"env"}};
  for (const Words& argv : others) EXPECT_EQ(Found(argv), "") << testing::PrintToString(argv);
}

std::string LineFor(const Words& argv) {
  const std::optional<LauncherUse> use = FindLauncher(argv);
  return use ? LineInPlaceOf(*use, argv) : "";
}

TEST(LineInPlaceOfTest, KeepsProgramAndArguments) {
  EXPECT_EQ(LineFor({"torchrun", "--nproc_per_node", "2", "my t.py"}),
            "--nproc_per_node 2 'my t.py'");
  EXPECT_EQ(LineFor({"horovodrun", "-np", "4", "-H", "a:2,b:2", "python3", "t.py"}),
            "-np 4 -H a:2,b:2 python3 t.py");
  EXPECT_EQ(LineFor({"mpirun", "-n", "4", "./a", "-n", "5"}), "-np 4 ./a -n 5");
  EXPECT_EQ(LineFor({"llamafactory-cli", "train", "c.yaml"}), "-m llamafactory.launcher c.yaml");
  EXPECT_EQ(LineFor({"axolotl", "evaluate", "c.yaml"}), "-m axolotl.cli.evaluate c.yaml");
  EXPECT_EQ(LineFor({"trl", "dpo", "--x", "1"}), "-m trl.scripts.dpo --x 1");
  EXPECT_EQ(LineFor({"trl", "sft", "--config", "c", "--accelerate_config", "z.yaml", "--x"}),
            "--accelerate_config z.yaml -m trl.scripts.sft --config c --x");
  EXPECT_EQ(LineFor({"accelerate", "launch", "--config_file", "f.yaml", "t.py"}),
            "--accelerate_config f.yaml t.py");
  EXPECT_EQ(LineFor({"composer", "-n", "2", "t.py"}), "SCRIPT.py");
}

TEST(FindLauncherInShellTest, FindsCommandsWithTheirLine) {
  const auto find = [](const std::string& script) {
    const std::optional<ShellLauncher> found = FindLauncherInShell(script);
    return found ? std::to_string(found->line) + " " + found->name : "";
  };
  EXPECT_EQ(find("#!/bin/bash\nset -e\n\n  torchrun --nproc_per_node 2 t.py\n"), "4 torchrun");
  EXPECT_EQ(find("source v/bin/activate && torchrun t.py"), "1 torchrun");
  EXPECT_EQ(find("OMP_NUM_THREADS=1 exec python3 -m torch.distributed.run t.py"),
            "1 python3 -m torch.distributed.run");
  EXPECT_EQ(find("if true; then deepspeed t.py; fi"), "1 deepspeed");
  EXPECT_EQ(find("\"/opt/x/torchrun\" t.py"), "1 /opt/x/torchrun");
  EXPECT_EQ(find("A=\"x y\" B='1;2' torchrun t.py"), "1 torchrun");
  EXPECT_EQ(find("echo \"see; torchrun t.py\""), "");
  EXPECT_EQ(find("log=$(torchrun t.py)"), "1 torchrun");
  EXPECT_EQ(find("# torchrun t.py\necho torchrun\ncommand -v echo\n"), "");
  EXPECT_EQ(find("./start \\\n  torchrun \\\n  t.py\n"), "");
  EXPECT_EQ(find(""), "");
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

TEST(CheckNoLauncherTest, RefusesLauncherByLinkOrConsoleScript) {
  const TempDir dir;
  Write(dir.path() + "/torchrun", "#!/bin/sh\n");
  ::symlink("torchrun", (dir.path() + "/linked").c_str());
  const Result<void> linked = CheckNoLauncher({dir.path() + "/linked", "t.py"}, "n1");
  ASSERT_FALSE(linked.ok());
  EXPECT_EQ(linked.error().code, ExitCode::kUsage);
  EXPECT_THAT(linked.error().message, HasSubstr("n1: '" + dir.path() + "/linked' starts ranks"));
  EXPECT_THAT(linked.error().message, HasSubstr("type: dslaunch [options] t.py (--nested"));

  Write(dir.path() + "/mine",
        "#!/opt/venv/bin/python\nimport sys\nfrom torch.distributed.run import main\n");
  EXPECT_FALSE(CheckNoLauncher({dir.path() + "/mine", "t.py"}, "n1").ok());
  Write(dir.path() + "/tool", "#!/opt/venv/bin/python\nfrom tool import main\n");
  EXPECT_TRUE(CheckNoLauncher({dir.path() + "/tool", "t.py"}, "n1").ok());
  EXPECT_TRUE(CheckNoLauncher({"/no/such/program"}, "n1").ok());
  EXPECT_TRUE(CheckNoLauncher({}, "n1").ok());
}

TEST(ShellLauncherWarningTest, NamesTheLineOfTheScript) {
  const TempDir dir;
  Write(dir.path() + "/run.sh", "#!/usr/bin/env bash\ntorchrun t.py\n");
  const std::string expected = "run.sh:2: 'torchrun' starts ranks itself";
  EXPECT_THAT(ShellLauncherWarning({"/bin/bash", "-e", "run.sh"}, dir.path()), HasSubstr(expected));
  EXPECT_THAT(ShellLauncherWarning({dir.path() + "/run.sh"}, "/"), HasSubstr(expected));
  EXPECT_THAT(ShellLauncherWarning({"sh", "-c", "torchrun t.py"}, "/"),
              testing::StartsWith("'torchrun' starts ranks itself"));
  EXPECT_EQ(ShellLauncherWarning({"sh", "-c", "echo torchrun"}, "/"), "");
  Write(dir.path() + "/t.py", "#!/usr/bin/python3\ntorchrun = 1\n");
  EXPECT_EQ(ShellLauncherWarning({dir.path() + "/t.py"}, "/"), "");
  EXPECT_EQ(ShellLauncherWarning({"sh"}, "/"), "");
  EXPECT_EQ(ShellLauncherWarning({}, "/"), "");
}

}  // namespace
}  // namespace dslaunch::launcher_use_test
