#include "cli/plan/job_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace dslaunch::job_program_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Map = std::map<std::string, std::string>;

// Returns the variables as a node sets them: later entries override earlier ones.
Map Variables(const pb::Program& program) {
  Map map;
  for (const pb::EnvVar& variable : program.env()) map[variable.name()] = variable.value();
  for (const pb::EnvVar& variable : program.chosen_env()) map[variable.name()] = variable.value();
  return map;
}

class JobProgramTest : public ::testing::Test {
 protected:
  JobProgramTest() {
    options_.program = {"train.py", "--lr", "1"};
    info_.cwd = "/work";
    plan_.launcher = Launcher::kSsh;
    plan_.nodes.emplace_back().name = "node1";
  }

  JobProgram Make() {
    const auto job = MakeJobProgram(options_, plan_, info_, nullptr);
    EXPECT_TRUE(job.ok()) << job.error().message;
    return *job;
  }
  Map OnNode() { return Variables(ProgramOn(plan_.nodes.front(), Make().program)); }
  Error Refusal() {
    const auto job = MakeJobProgram(options_, plan_, info_, nullptr);
    EXPECT_FALSE(job.ok());
    return job.ok() ? Error{} : job.error();
  }

  LaunchOptions options_;
  LaunchPlan plan_;
  ProgramInfo info_;
};

TEST_F(JobProgramTest, CarriesVariablesOfDeepSpeed) {
  info_.environment = {"NCCL_DEBUG=INFO",
                       "NCCL_IB_HCA=mlx5",
                       "PYTHONHASHSEED=0",
                       "UCX_NET_DEVICES=a",
                       "MV2_X=1",
                       "MLFLOW_Y=2",
                       "MASTER_HOST=h",
                       "AZUREML_RUN_ID=3",
                       "PATH=/here",
                       "HOME=/h",
                       "MY=1",
                       "EMPTY_NCCL=1"};
  EXPECT_EQ(OnNode(), (Map{{"NCCL_DEBUG", "INFO"},
                           {"NCCL_IB_HCA", "mlx5"},
                           {"PYTHONHASHSEED", "0"},
                           {"UCX_NET_DEVICES", "a"},
                           {"MV2_X", "1"},
                           {"MLFLOW_Y", "2"},
                           {"MASTER_HOST", "h"},
                           {"AZUREML_RUN_ID", "3"},
                           {"PYTHONPATH", "/work"}}));
  info_.environment.push_back("AISC_JOB_NAME=j");
  EXPECT_EQ(OnNode().count("NCCL_IB_HCA"), 0u);
  EXPECT_EQ(OnNode().count("UCX_NET_DEVICES"), 0u);
  EXPECT_EQ(OnNode().count("NCCL_DEBUG"), 1u);
}

TEST_F(JobProgramTest, PythonPathBeginsWithWorkingDirectory) {
  info_.environment = {"PYTHONPATH=/lib:/more"};
  EXPECT_EQ(OnNode().at("PYTHONPATH"), "/work:/lib:/more");
  info_.environment = {"PYTHONPATH="};
  EXPECT_EQ(OnNode().at("PYTHONPATH"), "/work");
}

TEST_F(JobProgramTest, CarriesVariablesOfFrameworks) {
  info_.environment = {"OMP_NUM_THREADS=3",
                       "TORCH_LOGS=x",
                       "CUDA_LAUNCH_BLOCKING=1",
                       "HF_TOKEN=hf_s3cret",
                       "TOKENIZERS_PARALLELISM=false",
                       "GLOO_SOCKET_IFNAME=ib0",
                       "OMPI_MCA_btl=tcp",
                       "RANK=7",
                       "OMPI_COMM_WORLD_RANK=7",
                       "TERM=xterm",
                       "DS_ENV_FILE=f"};
  EXPECT_EQ(OnNode(), (Map{{"OMP_NUM_THREADS", "3"},
                           {"TORCH_LOGS", "x"},
                           {"CUDA_LAUNCH_BLOCKING", "1"},
                           {"HF_TOKEN", "hf_s3cret"},
                           {"TOKENIZERS_PARALLELISM", "false"},
                           {"GLOO_SOCKET_IFNAME", "ib0"},
                           {"OMPI_MCA_btl", "tcp"},
                           {"PYTHONPATH", "/work"}}));
  EXPECT_THAT(Make().notices, IsEmpty());
}

TEST_F(JobProgramTest, NamesVariablesThatAreNotCarried) {
  info_.environment = {"MINE=s3cret", "CUDA_VISIBLE_DEVICES=0", "PATH=/bin", "SSH_AUTH_SOCK=/s",
                       "AWS_SECRET_ACCESS_KEY=s3cret"};
  EXPECT_THAT(
      Make().notices,
      ElementsAre("this shell's AWS_SECRET_ACCESS_KEY, CUDA_VISIBLE_DEVICES and MINE are not "
                  "passed to the nodes; -x NAME passes one"));
  options_.env = {"MINE", "AWS_SECRET_ACCESS_KEY=x"};
  EXPECT_THAT(Make().notices,
              ElementsAre("this shell's CUDA_VISIBLE_DEVICES is not passed to the nodes; -x NAME "
                          "passes one"));
  plan_.nodes.front().env = {{"CUDA_VISIBLE_DEVICES", "1"}};
  EXPECT_THAT(Make().notices, IsEmpty());
  for (int i = 10; i < 22; ++i) info_.environment.push_back("V" + std::to_string(i) + "=");
  EXPECT_THAT(Make().notices,
              ElementsAre("this shell's V10, V11, V12, V13, V14, V15, V16, V17 and 4 "
                          "more are not passed to the nodes; -x NAME passes one"));
  const TrainerProgram trainer{"/bin/dslaunch-train", "{}"};
  EXPECT_THAT(MakeJobProgram(options_, plan_, info_, &trainer)->notices, IsEmpty());
}

TEST_F(JobProgramTest, CarriesNothingToNodesThatInherit) {
  info_.environment = {"NCCL_DEBUG=INFO", "PYTHONPATH=/lib", "MINE=1"};
  plan_.launcher = Launcher::kLocal;
  EXPECT_THAT(OnNode(), IsEmpty());
  EXPECT_THAT(Make().notices, IsEmpty());
  plan_.launcher = Launcher::kSsh;
  options_.per_node.emplace();
  EXPECT_THAT(OnNode(), IsEmpty());
}

TEST_F(JobProgramTest, EachLayerOverridesThoseBelow) {
  const auto layers = [&](int count) {
    options_.env.clear();
    info_ = {};
    plan_.nodes.front().env.clear();
    if (count > 0) info_.environment = {"NCCL_X=exported"};
    if (count > 1) info_.env_files.push_back({"home", {{"NCCL_X", "home"}}, {}});
    if (count > 2) info_.env_files.push_back({"cwd", {{"NCCL_X", "cwd"}}, {}});
    if (count > 3) plan_.nodes.front().env = {{"NCCL_X", "hostfile"}};
    if (count > 4) options_.env = {"NCCL_X=option"};
    if (count > 5) options_.env.push_back("NCCL_X=last");
    return OnNode()["NCCL_X"];
  };
  EXPECT_EQ(layers(0), "");
  EXPECT_EQ(layers(1), "exported");
  EXPECT_EQ(layers(2), "home");
  EXPECT_EQ(layers(3), "cwd");
  EXPECT_EQ(layers(4), "hostfile");
  EXPECT_EQ(layers(5), "option");
  EXPECT_EQ(layers(6), "last");
}

TEST_F(JobProgramTest, HostfileVariablesApplyToOneNode) {
  plan_.nodes.emplace_back().env = {{"A", "2"}};
  const pb::Program program = Make().program;
  EXPECT_EQ(Variables(ProgramOn(plan_.nodes[0], program)).count("A"), 0u);
  EXPECT_EQ(Variables(ProgramOn(plan_.nodes[1], program)).at("A"), "2");
}

TEST_F(JobProgramTest, KeepsValuesLiteral) {
  options_.env = {"A=$(id) \"x\"\n=\xff", "B="};
  EXPECT_EQ(OnNode().at("A"), "$(id) \"x\"\n=\xff");
  EXPECT_EQ(OnNode().at("B"), "");
}

TEST_F(JobProgramTest, NameAloneCopiesVariableOfThisProcess) {
  info_.environment = {"HF_TOKEN=from here", "EMPTY="};
  options_.env = {"HF_TOKEN", "EMPTY"};
  EXPECT_EQ(OnNode().at("HF_TOKEN"), "from here");
  EXPECT_EQ(OnNode().at("EMPTY"), "");
  options_.env = {"HF_TOKEN", "HF_TOKEN=given"};
  EXPECT_EQ(OnNode().at("HF_TOKEN"), "given");
  options_.env = {"NOT_SET"};
  EXPECT_EQ(Refusal().code, ExitCode::kUsage);
  EXPECT_THAT(Refusal().message, HasSubstr("--env NOT_SET: this environment has no such variable"));
}

TEST_F(JobProgramTest, LeavesOutVariablesOfRanksPlace) {
  options_.env = {"RANK=5", "MODE=x"};
  info_.env_files.push_back({"f", {{"MASTER_PORT", "1"}}, {}});
  plan_.nodes.front().env = {{"LOCAL_RANK", "0"}};
  const JobProgram job = Make();
  EXPECT_THAT(job.notices, ElementsAre(HasSubstr("f: MASTER_PORT is left out"),
                                       HasSubstr("node1 in the hostfile: LOCAL_RANK is left out"),
                                       HasSubstr("--env: RANK is left out")));
  EXPECT_EQ(Variables(ProgramOn(plan_.nodes.front(), job.program)),
            (Map{{"MODE", "x"}, {"PYTHONPATH", "/work"}}));
}

TEST_F(JobProgramTest, ReportsEnvironmentFileWithoutItsValues) {
  info_.env_files.push_back({"/h/.deepspeed_env", {{"A", "secret"}, {"B", "2"}}, {"a notice"}});
  EXPECT_THAT(Make().notices, ElementsAre("all ranks get these variables from /h/.deepspeed_env: "
                                          "A, B",
                                          "a notice"));
}

TEST_F(JobProgramTest, RejectsNamesAndValuesThatExecveRefuses) {
  for (const char* entry : {"NAME", "=x", ""}) {
    options_.env = {entry};
    EXPECT_EQ(Refusal().code, ExitCode::kUsage);
    EXPECT_THAT(Refusal().message, HasSubstr("--env"));
  }
  options_.env = {"LONG=" + std::string(128u << 10, 'x')};
  EXPECT_THAT(Refusal().message, HasSubstr("--env LONG: the value is too long"));
  options_.env.clear();
  options_.program.push_back(std::string(128u << 10, 'x'));
  EXPECT_THAT(Refusal().message, HasSubstr("too long for a program"));
  options_.program.pop_back();
  info_.env_files.push_back({"f", {{"A", std::string(128u << 10, 'x')}}, {}});
  EXPECT_EQ(Refusal().code, ExitCode::kBadInput);
}

TEST_F(JobProgramTest, ChdirIsRelativeToCurrentFolder) {
  info_.cwd = "/home/u/job";
  EXPECT_EQ(Make().program.cwd(), "/home/u/job");
  options_.chdir = "../data";
  EXPECT_EQ(Make().program.cwd(), "/home/u/data");
  options_.chdir = "/scratch";
  EXPECT_EQ(Make().program.cwd(), "/scratch");
}

TEST_F(JobProgramTest, ChoosesScriptModuleOrPlainProgram) {
  EXPECT_EQ(Make().program.form(), pb::Program::SCRIPT);
  EXPECT_THAT(Make().program.argv(), ElementsAre("train.py", "--lr", "1"));
  options_.form = ProgramForm::kPlain;
  EXPECT_EQ(Make().program.form(), pb::Program::PLAIN);
  options_.form = ProgramForm::kPath;
  EXPECT_EQ(Make().program.form(), pb::Program::RUN_PATH);
  options_.form = ProgramForm::kModule;
  EXPECT_EQ(Make().program.form(), pb::Program::MODULE);
  options_.form = ProgramForm::kAuto;
  for (const char* program : {"./train", ".py", "python3"}) {
    options_.program = {program};
    EXPECT_EQ(Make().program.form(), pb::Program::PLAIN) << program;
  }
  EXPECT_FALSE(Make().program.no_local_rank());
  options_.no_local_rank = true;
  EXPECT_TRUE(Make().program.no_local_rank());
}

TEST_F(JobProgramTest, PassesPythonEnvironmentOfThisShell) {
  info_.python = {"/venv", "VIRTUAL_ENV", true};
  const pb::PythonEnvironment python = Make().program.python_environment();
  EXPECT_EQ(python.folder(), "/venv");
  EXPECT_EQ(python.variable(), "VIRTUAL_ENV");
  EXPECT_TRUE(python.in_path());
  EXPECT_EQ(python.need(), pb::PythonEnvironment::YES);
  EXPECT_THAT(Make().notices, IsEmpty());
  options_.form = ProgramForm::kPlain;
  info_.python_need = pb::PythonEnvironment::PERHAPS;
  EXPECT_EQ(Make().program.python_environment().need(), pb::PythonEnvironment::PERHAPS);
  options_.form = ProgramForm::kAuto;
  options_.env = {"PYTHON_EXEC=python3"};
  EXPECT_EQ(Make().program.python_environment().need(), pb::PythonEnvironment::NO);
  options_.env = {"VIRTUAL_ENV=/other"};
  EXPECT_FALSE(Make().program.has_python_environment()) << "the user's choice";
  options_.env.clear();
  options_.venv_script = "/x/activate";
  EXPECT_FALSE(Make().program.has_python_environment()) << "the script says which";
  EXPECT_EQ(Make().program.venv_script(), "/x/activate");
}

TEST_F(JobProgramTest, ReportsThatNodesUseAnotherPython) {
  info_.python.other = "/sw/bin/python3";
  EXPECT_THAT(Make().notices,
              ElementsAre("scripts run by the python3 in each node's own PATH, not by "
                          "/sw/bin/python3 of this shell; -x PYTHON_EXEC=/sw/bin/python3 chooses "
                          "it"));
  plan_.launcher = Launcher::kLocal;
  EXPECT_THAT(Make().notices, IsEmpty());
}

TEST_F(JobProgramTest, ReportsWhichOfTwoPythonEnvironmentsRanksUse) {
  info_.python = {"/own", "", false, "/own"};
  EXPECT_THAT(Make().notices, ElementsAre("ranks run /own/bin/python3, of the environment in which "
                                          "dslaunch is installed"));
  info_.python = {"/venv", "VIRTUAL_ENV", true, "/own"};
  EXPECT_THAT(
      Make().notices,
      ElementsAre("ranks run /venv/bin/python3, as VIRTUAL_ENV is set, not that of /own, in "
                  "which dslaunch is installed"));
  info_.python = {"/own", "VIRTUAL_ENV", true, "/own"};
  EXPECT_THAT(Make().notices, IsEmpty());
  info_.python = {"/own", "", false, "/own"};
  options_.program = {"./a.out"};
  EXPECT_THAT(Make().notices, IsEmpty());
}

TEST_F(JobProgramTest, RecipeOverridesUsersVariable) {
  options_.env = {"DSLAUNCH_RECIPE=x"};
  const TrainerProgram trainer{"/bin/dslaunch-train", "{}"};
  const auto job = MakeJobProgram(options_, plan_, info_, &trainer);
  ASSERT_TRUE(job.ok());
  EXPECT_THAT(job->program.argv(), ElementsAre("/bin/dslaunch-train"));
  EXPECT_EQ(job->program.form(), pb::Program::PLAIN);
  EXPECT_EQ(Variables(job->program).at("DSLAUNCH_RECIPE"), "{}");
}

TEST_F(JobProgramTest, TunesMemoryOfTrainerByDefault) {
  const TrainerProgram trainer{"/bin/dslaunch-train", "{}"};
  const auto tunables = [&](const TrainerProgram* program) {
    const auto variables = Variables(MakeJobProgram(options_, plan_, info_, program)->program);
    const auto found = variables.find("GLIBC_TUNABLES");
    return found == variables.end() ? "" : found->second;
  };
  EXPECT_THAT(tunables(&trainer), HasSubstr("glibc.malloc.hugetlb=1"));
  options_.env = {"GLIBC_TUNABLES=glibc.malloc.check=3"};
  EXPECT_EQ(tunables(&trainer), "glibc.malloc.check=3");
  options_.env = {};
  info_.environment = {"GLIBC_TUNABLES=glibc.malloc.check=1"};
  EXPECT_EQ(tunables(&trainer), "glibc.malloc.check=1") << "the user's own is carried";
  info_.environment = {};
  options_.program = {"train.py"};
  EXPECT_EQ(tunables(nullptr), "") << "a user's program is left alone";
}

TEST(RankOptionsTest, CopiesRoleAddressAndBinding) {
  LaunchOptions options;
  EXPECT_EQ(MakeRankOptions(options)->role(), "default");
  EXPECT_EQ(MakeRankOptions(options)->bind(), pb::RankOptions::NONE);
  options.role = "trainer";
  options.master_addr = "10.0.0.1";
  options.virtual_local_rank = true;
  options.numa_binding = NumaBinding::kCoreComplex;
  const auto ranks = MakeRankOptions(options);
  EXPECT_EQ(ranks->role(), "trainer");
  EXPECT_EQ(ranks->master_addr(), "10.0.0.1");
  EXPECT_TRUE(ranks->virtual_local_rank());
  EXPECT_EQ(ranks->bind(), pb::RankOptions::CORE_COMPLEX);
  EXPECT_EQ(ranks->run_id(), "");
  options.run_id = "77";
  EXPECT_EQ(MakeRankOptions(options)->run_id(), "77");
}

TEST(RankOptionsTest, ReadsBindCoreList) {
  LaunchOptions options;
  options.bind_core_list = "1,3-5";
  EXPECT_THAT(MakeRankOptions(options).error().message, HasSubstr("--bind_cores_to_rank"));
  options.bind_cores_to_rank = true;
  EXPECT_THAT(MakeRankOptions(options)->cores(), ElementsAre(1, 3, 4, 5));
  options.bind_core_list = "5-3";
  EXPECT_EQ(MakeRankOptions(options).error().code, ExitCode::kUsage);
  EXPECT_THAT(MakeRankOptions(options).error().message, HasSubstr("--bind_core_list: '5-3'"));
  options.bind_core_list.reset();
  options.numa_binding = NumaBinding::kNode;
  EXPECT_THAT(MakeRankOptions(options).error().message, HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace dslaunch::job_program_test
