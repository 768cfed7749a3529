#include "cli/launchers/start_all.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

namespace dslaunch::start_all_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<NodeTarget> kNodes = {{"node1", "node1", 0, ""}, {"web", "node2.site", 0, ""}};

std::string AfterWord(const std::vector<std::string>& words, const std::string& word) {
  const auto found = std::ranges::find(words, word);
  return found == words.end() || found + 1 == words.end() ? "" : found[1];
}

// Makes the program of a launcher as in an environment with these variables.
LauncherProgram Program(Launcher launcher, std::vector<std::string> words,
                        const std::map<std::string, std::string>& environment = {},
                        bool is_root = false) {
  return MakeLauncherProgram(launcher, std::move(words), is_root,
                             [&](const char* name) -> const char* {
                               const auto found = environment.find(name);
                               return found == environment.end() ? nullptr : found->second.c_str();
                             });
}

std::vector<std::string> CommandFor(const LauncherProgram& program,
                                    const std::vector<NodeTarget>& nodes,
                                    const std::string& script) {
  return RowOf(program.launcher).start_all->command(program, nodes, script);
}

TEST(StartAllTest, MpirunGetsNodesInOrderAndScriptAsOneWord) {
  const LauncherProgram mpirun =
      Program(Launcher::kOpenMpi, {"/usr/bin/mpirun", "--mca", "a", "b"});
  const auto words = CommandFor(mpirun, kNodes, "echo $OMPI_COMM_WORLD_RANK; x");
  EXPECT_EQ(words[1], "--mca");
  EXPECT_EQ(AfterWord(words, "--host"), "node1,node2.site");
  EXPECT_EQ(AfterWord(words, "-np"), "2");
  EXPECT_EQ(AfterWord(words, "--map-by"), "seq");
  EXPECT_EQ(AfterWord(words, "orte_abort_on_non_zero_status"), "0");  // Open MPI 4
  EXPECT_EQ(AfterWord(words, "prte_abort_on_non_zero_status"), "0");  // Open MPI 5
  EXPECT_EQ(words.back(), "echo $OMPI_COMM_WORLD_RANK; x");
  EXPECT_THAT(words, Not(Contains("--allow-run-as-root")));
  EXPECT_EQ(TryThisCommand(mpirun, kNodes[1]), "/usr/bin/mpirun --mca a b --host node2.site true");
  const LauncherProgram by_root =
      Program(Launcher::kOpenMpi, {"/usr/bin/mpirun"}, {}, /*is_root=*/true);
  EXPECT_THAT(CommandFor(by_root, kNodes, "x"), Contains("--allow-run-as-root"));
}

TEST(StartAllTest, EscapesPercentSignsForPdsh) {
  const LauncherProgram pdsh = Program(Launcher::kPdsh, {"/usr/bin/pdsh"});
  std::vector<NodeTarget> nodes = kNodes;
  nodes[0].user = "alice";
  const auto words = CommandFor(pdsh, nodes, "sh -c 'echo {place} ${s%% *}'");
  EXPECT_EQ(AfterWord(words, "-R"), "ssh");
  EXPECT_EQ(AfterWord(words, "-w"), "alice@node1,node2.site");
  EXPECT_EQ(AfterWord(words, "-f"), "2");
  EXPECT_EQ(words.back(), "sh -c 'echo %n ${s%%%% *}'");
  EXPECT_TRUE(kPdsh.runs_login_shell);
  EXPECT_EQ(TryThisCommand(pdsh, kNodes[0]), "/usr/bin/pdsh -R ssh -w node1 true");
  const LauncherProgram by_rsh =
      Program(Launcher::kPdsh, {"/usr/bin/pdsh"}, {{"PDSH_RCMD_TYPE", "rsh"}});
  EXPECT_THAT(CommandFor(by_rsh, nodes, "x"), Not(Contains("-R")));
}

TEST(StartAllTest, PbsdshRunsOnceForEachHostWithItsIndex) {
  const LauncherProgram pbsdsh = Program(Launcher::kPbs, {"/opt/pbs/bin/pbsdsh"});
  const auto words = CommandFor(pbsdsh, kNodes, "call $0");
  EXPECT_EQ(words[0], "/bin/sh");
  EXPECT_THAT(words[2], HasSubstr("-o -h"));
  EXPECT_EQ(AfterWord(words, "sh"), "/opt/pbs/bin/pbsdsh");
  EXPECT_EQ(AfterWord(words, "call $0"), "node1");
  EXPECT_EQ(words.back(), "node2.site");
  EXPECT_EQ(TryThisCommand(pbsdsh, kNodes[1]), "/opt/pbs/bin/pbsdsh -o -h node2.site true");
}

TEST(StartAllTest, RefusesNodesThatLauncherCannotName) {
  EXPECT_TRUE(CheckLauncherNodes(Launcher::kOpenMpi, kNodes).ok());
  const auto why = [](Launcher launcher, const NodeTarget& node) {
    const Result<void> checked = CheckLauncherNodes(launcher, {node});
    return checked.ok() ? "" : checked.error().message;
  };
  for (const char* host : {"-x", "a,b", "a:2", "fd66::1", "n[1-2]", "a b", "^f", ""})
    EXPECT_THAT(why(Launcher::kPdsh, {"n", host, 0, ""}), HasSubstr("as a host")) << host;
  EXPECT_THAT(why(Launcher::kPdsh, {"n", "n", 22, ""}), HasSubstr("has port 22"));
  EXPECT_THAT(why(Launcher::kOpenMpi, {"n", "n", 0, "alice"}), HasSubstr("has user alice"));
  EXPECT_EQ(why(Launcher::kPdsh, {"n", "n", 0, "alice"}), "");
  EXPECT_THAT(CheckLauncherNodes(Launcher::kPdsh, {kNodes[0], kNodes[0]}).error().message,
              HasSubstr("is the host of two nodes"));
}

TEST(StartAllTest, SrunStartsOneTaskOnEachNode) {
  const LauncherProgram srun = Program(Launcher::kSlurm, {"/usr/bin/srun", "--jobid=41"});
  const auto words = CommandFor(srun, kNodes, "x");
  for (const char* word : {"--jobid=41", "--overlap", "--nodes=2", "--ntasks=2",
                           "--nodelist=node1,node2.site", "--no-kill"})
    EXPECT_THAT(words, Contains(word));
  EXPECT_EQ(words.back(), "x");
}

// Returns srun's options that select shares and nodes, by component.
std::vector<std::string> SharesAsked(const LauncherProgram& srun,
                                     const std::vector<NodeTarget>& nodes) {
  std::vector<std::string> asked(1);
  for (const std::string& word : CommandFor(srun, nodes, "x")) {
    if (word == ":") asked.emplace_back();
    for (const char* option : {"--het-group=", "--gres=", "--gpus=", "--nodelist="}) {
      if (word.starts_with(option)) asked.back() += (asked.back().empty() ? "" : " ") + word;
    }
  }
  return asked;
}

TEST(StartAllTest, SrunRequestsAllGresOfEachNode) {
  const std::vector<NodeTarget> nodes = {{"n1", "n1", 0, ""}, {"n2", "n2", 0, ""}};
  LauncherProgram srun{Launcher::kSlurm, {"/usr/bin/srun", "--jobid=41"}};
  srun.shares = {{"n1", {-1, 4, "gpu:4,nic:1"}}, {"n2", {-1, 4, "gpu:4,nic:1"}}};
  EXPECT_THAT(SharesAsked(srun, nodes), ElementsAre("--gres=gpu:4,nic:1 --nodelist=n1,n2"));
  EXPECT_THAT(SharesAsked(srun, {nodes[1]}), ElementsAre("--gpus=4 --gres=nic:1 --nodelist=n2"));
  srun.shares["n2"] = {-1, 2, "gpu:a100:2"};
  EXPECT_THAT(SharesAsked(srun, nodes),
              ElementsAre("--gpus=4 --gres=nic:1 --nodelist=n1", "--gpus=2 --nodelist=n2"));
  srun.shares = {};
  EXPECT_THAT(SharesAsked(srun, nodes), ElementsAre("--nodelist=n1,n2"));
}

TEST(StartAllTest, SrunHasComponentForEachOfHeterogeneousJob) {
  const std::vector<NodeTarget> nodes = {
      {"n1", "n1", 0, ""}, {"n2", "n2", 0, ""}, {"n3", "n3", 0, ""}};
  LauncherProgram srun{Launcher::kSlurm, {"/usr/bin/srun", "--jobid=41"}};
  srun.shares = {{"n1", {0, 0, ""}}, {"n2", {1, 4, "gpu:4"}}, {"n3", {1, 4, "gpu:4"}}};
  EXPECT_THAT(SharesAsked(srun, nodes), ElementsAre("--het-group=0 --nodelist=n1",
                                                    "--het-group=1 --gres=gpu:4 --nodelist=n2,n3"));
}

TEST(StartAllTest, HidesRequestsOfAllocationFromSrunOnly) {
  const LauncherProgram program =
      Program(Launcher::kSlurm, {"/usr/bin/srun", "--jobid=41"}, {{"SLURM_GPUS", "6"}});
  const auto words = CommandFor(program, kNodes, "x");
  EXPECT_EQ(words.front(), "/usr/bin/env");
  const auto srun = std::ranges::find(words, "/usr/bin/srun");
  EXPECT_NE(std::find(words.begin(), srun, "SLURM_GPUS"), srun);
  EXPECT_NE(std::find(srun, words.end(), "SLURM_GPUS=6"), words.end());
}

TEST(StartAllTest, OmitsRemarkOfSrunOnCpuBinding) {
  EXPECT_EQ(
      kSrun.without_remarks("srun: cluster configuration lacks support for cpu binding\nsrun: "
                            "error: n2: task 1: Killed\n"),
      "srun: error: n2: task 1: Killed\n");
}

TEST(StartAllTest, NodeOfPlaceTakesIndexOrSlurmNodeName) {
  EXPECT_EQ(NodeOfPlace(Launcher::kPdsh, "0", kNodes), 0u);
  EXPECT_EQ(NodeOfPlace(Launcher::kOpenMpi, "1", kNodes), 1u);
  for (const char* place : {"2", "-1", "1x", "", "node1"})
    EXPECT_EQ(NodeOfPlace(Launcher::kPdsh, place, kNodes), std::nullopt) << place;
  EXPECT_EQ(NodeOfPlace(Launcher::kSlurm, "node2.site", kNodes), 1u);
  EXPECT_EQ(NodeOfPlace(Launcher::kSlurm, "1", kNodes), std::nullopt);
}

TEST(StartAllTest, ReadsPdshFailure) {
  EXPECT_EQ(kPdsh.read_failure("pdsh@laptop: " + kNodes[1].host + ": ssh exited with exit code 255",
                               kNodes),
            (CommandFailure{1, "ssh exited with exit code 255"}));
  for (const char* line :
       {"", "pdsh@laptop", "pdsh@laptop: ", "pdsh@laptop: other: ssh exited with exit code 255",
        "ssh exited with exit code 255", "pdsh@laptop: node1: no route"})
    EXPECT_EQ(kPdsh.read_failure(line, kNodes), std::nullopt) << line;
}

TEST(StartAllTest, ReadsHowSlurmEndedTheStep) {
  EXPECT_EQ(
      kSrun.read_cancellation("srun: Job step aborted: Waiting up to 7 seconds\n"
                              "slurmstepd-n1: error: *** STEP 39.0 ON n1 CANCELLED AT "
                              "2026-11-28T13:06:26 DUE TO TIME LIMIT ***\n"
                              "slurmstepd-n2: error: *** STEP 39.0 ON n1 CANCELLED AT x ***\n"),
      "STEP 39.0 ON n1 CANCELLED AT 2026-11-28T13:06:26 DUE TO TIME LIMIT");
  for (const char* words : {"", "\n", "slurmstepd: CANCELLED AT ", "slurmstepd: error: *** x",
                            "rank: *** STEP 1.0 ON n1 CANCELLED AT x ***"})
    EXPECT_EQ(kSrun.read_cancellation(words), "") << words;
}

}  // namespace
}  // namespace dslaunch::start_all_test
