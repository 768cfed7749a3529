// Tests launchers that are given as the program, and the options that replace them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/options/options.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::nested_launch_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Result<LaunchOptions> Parse(const Words& arguments, const char* const* environment = nullptr) {
  std::vector<const char*> argv = {"dslaunch"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ParseContext context;
  context.environment = environment;
  context.has_program = [](const std::string& name) { return name == "/v/bin/python3"; };
  return ParseOptions(static_cast<int>(argv.size()), argv.data(), context);
}

LaunchOptions Good(const Words& arguments, const char* const* environment = nullptr) {
  Result<LaunchOptions> options = Parse(arguments, environment);
  EXPECT_TRUE(options.ok()) << options.error().message;
  return options.ok() ? *options : LaunchOptions();
}

std::string Refused(const Words& arguments) {
  const Result<LaunchOptions> options = Parse(arguments);
  EXPECT_FALSE(options.ok()) << testing::PrintToString(arguments);
  if (options.ok()) return "";
  EXPECT_EQ(options.error().code, ExitCode::kUsage);
  return options.error().message;
}

TEST(NestedLaunchTest, ReplacesTorchrunAndReportsIt) {
  const LaunchOptions options = Good(
      {"--num_gpus", "2", "torchrun", "--nproc_per_node", "2", "--max-restarts=3", "t.py", "--x"});
  EXPECT_THAT(options.program, ElementsAre("t.py", "--x"));
  EXPECT_EQ(options.num_gpus, 2);
  EXPECT_EQ(options.max_restarts, 3);
  EXPECT_THAT(options.notices,
              ElementsAre("torchrun is not started: dslaunch starts 't.py' in its place, as by: "
                          "dslaunch --num_gpus 2 --max_restarts 3 t.py ... (--nested starts "
                          "torchrun in each rank)"));
}

TEST(NestedLaunchTest, ReplacesDeepspeedAndPythonModules) {
  LaunchOptions options = Good({"deepspeed", "--num_gpus", "2", "--include", "", "t.py"});
  EXPECT_THAT(options.program, ElementsAre("t.py"));
  EXPECT_EQ(options.num_gpus, 2);
  options =
      Good({"python3", "-m", "torch.distributed.run", "--nproc-per-node=3", "-m", "mod", "a"});
  EXPECT_THAT(options.program, ElementsAre("mod", "a"));
  EXPECT_EQ(options.form, ProgramForm::kModule);
  EXPECT_EQ(options.num_gpus, 3);
  EXPECT_TRUE(options.env.empty());
  options = Good({"-m", "torch.distributed.launch", "--use_env", "t.py"});
  EXPECT_THAT(options.program, ElementsAre("t.py"));
  EXPECT_EQ(options.form, ProgramForm::kAuto);
  EXPECT_TRUE(options.no_local_rank);
  options = Good({"--no_python", "torchrun", "--no_python", "./t"});
  EXPECT_EQ(options.form, ProgramForm::kPlain);
}

TEST(NestedLaunchTest, ReplacesAccelerateLaunch) {
  LaunchOptions options = Good({"accelerate", "launch", "--config_file", "f.yaml", "t.py", "--x"});
  EXPECT_EQ(options.accelerate_config, "f.yaml");
  EXPECT_THAT(options.program, ElementsAre("t.py", "--x"));
  EXPECT_FALSE(options.num_gpus || options.num_ranks);
  EXPECT_THAT(options.notices, ElementsAre(HasSubstr("accelerate launch is not started: dslaunch "
                                                     "starts 't.py' in its place, as by: dslaunch "
                                                     "--accelerate_config f.yaml t.py ... (")));
  options = Good({"accelerate-launch", "--num_processes", "4", "--num_machines=2", "--multi_gpu",
                  "--mixed_precision", "bf16", "-m", "mod"});
  EXPECT_EQ(options.num_nodes, 2);
  EXPECT_EQ(options.num_gpus, 2);
  EXPECT_FALSE(options.accelerate_config);
  EXPECT_THAT(options.env, ElementsAre("ACCELERATE_MIXED_PRECISION=bf16"));
  EXPECT_EQ(options.form, ProgramForm::kModule);
  EXPECT_THAT(Refused({"accelerate", "launch", "--use_fsdp", "t.py"}),
              HasSubstr("accelerate launch: option '--use_fsdp' is not supported"));
  EXPECT_THAT(
      Refused({"accelerate", "launch", "--config_file", "f", "--mixed_precision=no", "t.py"}),
      HasSubstr("the file has the precision"));
}

TEST(NestedLaunchTest, UsesDefaultConfigurationOfAccelerate) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() + "/accelerate");
  std::ofstream(dir.path() + "/accelerate/default_config.yaml") << "distributed_type: FSDP\n";
  const std::string home = "HF_HOME=" + dir.path();
  const char* environment[] = {home.c_str(), nullptr};
  EXPECT_EQ(Good({"accelerate", "launch", "t.py"}, environment).accelerate_config, "default");
  EXPECT_EQ(Good({"--accelerate_config", "f", "accelerate", "launch", "t.py"}, environment)
                .accelerate_config,
            "f");
  EXPECT_FALSE(Good({"accelerate", "launch", "t.py"}).accelerate_config);
}

TEST(NestedLaunchTest, KeepsInterpreterAndVariables) {
  EXPECT_THAT(Good({"--env", "A=0", "env", "A=1", "torchrun", "t.py"}).env,
              ElementsAre("A=1", "A=0"));
  EXPECT_THAT(Good({"python3.11", "-m", "torch.distributed.run", "t.py"}).env,
              ElementsAre("PYTHON_EXEC=python3.11"));
  EXPECT_THAT(Good({"/v/bin/torchrun", "t.py"}).env, ElementsAre("PYTHON_EXEC=/v/bin/python3"));
  EXPECT_TRUE(Good({"/usr/local/bin/torchrun", "t.py"}).env.empty());
}

TEST(NestedLaunchTest, StartsOneRankPerNodeForTorchrun) {
  const LaunchOptions options = Good({"torchrun", "t.py"});
  EXPECT_EQ(options.num_gpus, 1);
  EXPECT_THAT(options.notices.back(), HasSubstr("1 rank per node, as torchrun starts it"));
  EXPECT_FALSE(Good({"-H", "hf", "torchrun", "t.py"}).num_gpus);
  EXPECT_FALSE(Good({"-np", "4", "torchrun", "t.py"}).num_gpus);
  EXPECT_FALSE(Good({"deepspeed", "t.py"}).num_gpus);
}

TEST(NestedLaunchTest, RejectsContradictoryOptions) {
  EXPECT_THAT(Refused({"--num_gpus", "2", "torchrun", "--nproc_per_node", "4", "t.py"}),
              HasSubstr("--num_gpus 2 contradicts torchrun's --nproc_per_node 4"));
  EXPECT_THAT(Refused({"-H", "hf", "torchrun", "--standalone", "t.py"}),
              HasSubstr("-H (--hostfile) and torchrun's --standalone exclude each other"));
  EXPECT_THAT(Refused({"torchrun", "--show", "all", "t.py"}),
              HasSubstr("torchrun has no option --show, dslaunch has: give it before torchrun"));
  EXPECT_THAT(Refused({"torchrun", "--nproc_per_node", "2"}), HasSubstr("there is no program"));
  EXPECT_THAT(Refused({"torchrun", "--rdzv-what", "2", "t.py"}), HasSubstr("torchrun: "));
}

TEST(NestedLaunchTest, RejectsOtherLaunchersWithCommandToType) {
  EXPECT_THAT(Refused({"--num_gpus", "2", "llamafactory-cli", "train", "c.yaml"}),
              HasSubstr("'llamafactory-cli train' starts ranks itself: started in each rank, it "
                        "would run as many separate jobs; type: dslaunch --num_gpus 2 -m "
                        "llamafactory.launcher c.yaml (--nested starts it in each rank)"));
  EXPECT_THAT(Refused({"mpirun", "-np", "2", "./a"}), HasSubstr("type: dslaunch -np 2 ./a ("));
  EXPECT_THAT(Refused({"horovodrun", "-np", "2", "python3", "t.py"}),
              HasSubstr("type: dslaunch -np 2 python3 t.py ("));
  EXPECT_THAT(Refused({"-n", "2", "nohup", "torchrun", "--nproc_per_node=2", "t.py"}),
              HasSubstr("type: nohup dslaunch --nproc_per_node=2 t.py ("));
  EXPECT_THAT(Refused({"srun", "python3", "t.py"}), HasSubstr("type: dslaunch PROGRAM in the"));
  EXPECT_THAT(Refused({"tune", "run", "r", "--config", "c"}), HasSubstr("tune cp RECIPE"));
}

TEST(NestedLaunchTest, NestedOptionStartsTheLauncherItself) {
  const LaunchOptions options = Good({"--nested", "-n", "2", "torchrun", "--nproc_per_node", "2"});
  EXPECT_THAT(options.program, ElementsAre("torchrun", "--nproc_per_node", "2"));
  EXPECT_TRUE(options.nested && options.notices.empty());
  EXPECT_THAT(Good({"torchrun", "--help"}).program, ElementsAre("torchrun", "--help"));
}

TEST(NestedLaunchTest, RejectsSecondProgramOfMpirun) {
  EXPECT_THAT(Refused({"-np", "1", "./a", ":", "-np", "3", "./b"}),
              HasSubstr("':' before -np: all ranks run one program"));
  EXPECT_THAT(Good({"./a", ":", "b"}).program, ElementsAre("./a", ":", "b"));
}

TEST(ReservedCommandTest, RejectsNamesOfPlannedCommands) {
  for (const char* name : {"import", "convert"}) {
    const std::string word = name;
    EXPECT_THAT(Refused({word, "x"}),
                HasSubstr("'" + word +
                          "' is reserved for a command of dslaunch; start a program of that name "
                          "by its path, such as ./" +
                          word));
    EXPECT_THAT(Good({"./" + word}).program, ElementsAre("./" + word));
    EXPECT_THAT(Good({"-m", word}).program, ElementsAre(word));
  }
}

}  // namespace
}  // namespace dslaunch::nested_launch_test
