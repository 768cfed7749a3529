#include "cli/launchers/engine_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/transport/ssh_bootstrap.h"

namespace dslaunch::engine_command_test {
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

TEST(EngineCommandTest, MpirunGetsNodesInOrderAndTheScriptAsOneWord) {
  const EngineWords engine{Engine::kOpenMpi, {"/usr/bin/mpirun", "--mca", "a", "b"}};
  const auto words = EngineCommandLine(engine, kNodes, "echo $OMPI_COMM_WORLD_RANK; x");
  EXPECT_EQ(words[1], "--mca");
  EXPECT_EQ(AfterWord(words, "--host"), "node1,node2.site");
  EXPECT_EQ(AfterWord(words, "-np"), "2");
  EXPECT_EQ(AfterWord(words, "--map-by"), "seq");
  EXPECT_EQ(AfterWord(words, "orte_abort_on_non_zero_status"), "0");  // Open MPI 4
  EXPECT_EQ(AfterWord(words, "prte_abort_on_non_zero_status"), "0");  // Open MPI 5
  EXPECT_EQ(words.back(), "echo $OMPI_COMM_WORLD_RANK; x");
  EXPECT_THAT(words, Not(Contains("--allow-run-as-root")));
  EXPECT_EQ(EngineTryThis(engine, kNodes[1]), "/usr/bin/mpirun --mca a b --host node2.site true");
}

TEST(EngineCommandTest, PdshGetsNoPercentSignOfItsOwn) {
  const EngineWords engine{Engine::kPdsh, {"/usr/bin/pdsh"}};
  std::vector<NodeTarget> nodes = kNodes;
  nodes[0].user = "alice";
  const auto words = EngineCommandLine(engine, nodes, "echo {place} ${s%% *}");
  EXPECT_EQ(AfterWord(words, "-R"), "ssh");
  EXPECT_EQ(AfterWord(words, "-w"), "alice@node1,node2.site");
  EXPECT_EQ(AfterWord(words, "-f"), "2");
  EXPECT_EQ(words.back(), "/bin/sh -c 'echo %n ${s%%%% *}'");
  const EngineWords by_rsh{Engine::kPdsh, {"/usr/bin/pdsh"}, false, /*knows_rcmd=*/true};
  EXPECT_THAT(EngineCommandLine(by_rsh, nodes, "x"), Not(Contains("-R")));
}

TEST(EngineCommandTest, NodesThatAnEngineCannotNameAreRefused) {
  EXPECT_TRUE(CheckEngineNodes(Engine::kOpenMpi, kNodes).ok());
  const auto why = [](Engine engine, const NodeTarget& node) {
    const Result<void> checked = CheckEngineNodes(engine, {node});
    return checked.ok() ? "" : checked.error().message;
  };
  for (const char* host : {"-x", "a,b", "a:2", "fd66::1", "n[1-2]", "a b", "^f", ""})
    EXPECT_THAT(why(Engine::kPdsh, {"n", host, 0, ""}), HasSubstr("as a host")) << host;
  EXPECT_THAT(why(Engine::kPdsh, {"n", "n", 22, ""}), HasSubstr("has port 22"));
  EXPECT_THAT(why(Engine::kOpenMpi, {"n", "n", 0, "alice"}), HasSubstr("has user alice"));
  EXPECT_EQ(why(Engine::kPdsh, {"n", "n", 0, "alice"}), "");
  EXPECT_THAT(CheckEngineNodes(Engine::kPdsh, {kNodes[0], kNodes[0]}).error().message,
              HasSubstr("is the host of two nodes"));
}

TEST(EngineCommandTest, SrunStartsOneTaskOnEachNode) {
  const EngineWords engine{Engine::kSlurm, {"/usr/bin/srun", "--jobid=41"}};
  const auto words = EngineCommandLine(engine, kNodes, "x");
  for (const char* word : {"--jobid=41", "--overlap", "--nodes=2", "--ntasks=2",
                           "--nodelist=node1,node2.site", "--no-kill"})
    EXPECT_THAT(words, Contains(word));
  EXPECT_EQ(words.back(), "x");
}

// Words of srun's command line, by component; the options that all have are left out.
std::vector<std::string> SharesAsked(const EngineWords& engine,
                                     const std::vector<NodeTarget>& nodes) {
  std::vector<std::string> asked(1);
  for (const std::string& word : EngineCommandLine(engine, nodes, "x")) {
    if (word == ":") asked.emplace_back();
    for (const char* option : {"--het-group=", "--gres=", "--gpus=", "--nodelist="}) {
      if (word.starts_with(option)) asked.back() += (asked.back().empty() ? "" : " ") + word;
    }
  }
  return asked;
}

TEST(EngineCommandTest, SrunAsksForAllGresOfEachNode) {
  const std::vector<NodeTarget> nodes = {{"n1", "n1", 0, ""}, {"n2", "n2", 0, ""}};
  EngineWords engine{Engine::kSlurm, {"/usr/bin/srun", "--jobid=41"}};
  engine.shares = {{"n1", {-1, 4, "gpu:4,nic:1"}}, {"n2", {-1, 4, "gpu:4,nic:1"}}};
  EXPECT_THAT(SharesAsked(engine, nodes), ElementsAre("--gres=gpu:4,nic:1 --nodelist=n1,n2"));
  EXPECT_THAT(SharesAsked(engine, {nodes[1]}), ElementsAre("--gpus=4 --gres=nic:1 --nodelist=n2"));
  engine.shares["n2"] = {-1, 2, "gpu:a100:2"};
  EXPECT_THAT(SharesAsked(engine, nodes),
              ElementsAre("--gpus=4 --gres=nic:1 --nodelist=n1", "--gpus=2 --nodelist=n2"));
  engine.shares = {};
  EXPECT_THAT(SharesAsked(engine, nodes), ElementsAre("--nodelist=n1,n2"));
}

TEST(EngineCommandTest, SrunHasComponentForEachOfHeterogeneousJob) {
  const std::vector<NodeTarget> nodes = {
      {"n1", "n1", 0, ""}, {"n2", "n2", 0, ""}, {"n3", "n3", 0, ""}};
  EngineWords engine{Engine::kSlurm, {"/usr/bin/srun", "--jobid=41"}};
  engine.shares = {{"n1", {0, 0, ""}}, {"n2", {1, 4, "gpu:4"}}, {"n3", {1, 4, "gpu:4"}}};
  EXPECT_THAT(
      SharesAsked(engine, nodes),
      ElementsAre("--het-group=0 --nodelist=n1", "--het-group=1 --gres=gpu:4 --nodelist=n2,n3"));
}

TEST(EngineCommandTest, RequestsOfTheAllocationAreHiddenFromSrunOnly) {
  EngineWords engine{Engine::kSlurm, {"/usr/bin/srun", "--jobid=41"}};
  engine.request_variables = {"SLURM_GPUS=6"};
  const auto words = EngineCommandLine(engine, kNodes, "x");
  EXPECT_EQ(words.front(), "/usr/bin/env");
  const auto srun = std::ranges::find(words, "/usr/bin/srun");
  EXPECT_NE(std::find(words.begin(), srun, "SLURM_GPUS"), srun);
  EXPECT_NE(std::find(srun, words.end(), "SLURM_GPUS=6"), words.end());
}

TEST(EngineCommandTest, OmitsSrunsRemarkOnCpuBinding) {
  EXPECT_EQ(WithoutSrunRemarks("srun: cluster configuration lacks support for cpu binding\nsrun: "
                               "error: n2: task 1: Killed\n"),
            "srun: error: n2: task 1: Killed\n");
}

TEST(EngineCommandTest, APlaceIsANodesNumberOrSlurmsName) {
  EXPECT_EQ(NodeOfPlace(Engine::kPdsh, "0", kNodes), 0u);
  EXPECT_EQ(NodeOfPlace(Engine::kOpenMpi, "1", kNodes), 1u);
  for (const char* place : {"2", "-1", "1x", "", "node1"})
    EXPECT_EQ(NodeOfPlace(Engine::kPdsh, place, kNodes), std::nullopt) << place;
  EXPECT_EQ(NodeOfPlace(Engine::kSlurm, "node2.site", kNodes), 1u);
  EXPECT_EQ(NodeOfPlace(Engine::kSlurm, "1", kNodes), std::nullopt);
}

TEST(EngineCommandTest, WhatPdshSaysOfAFailure) {
  EXPECT_EQ(
      ReadPdshFailure("pdsh@laptop: " + kNodes[1].host + ": ssh exited with exit code 255", kNodes),
      (PdshFailure{1, "ssh exited with exit code 255"}));
  for (const char* line :
       {"", "pdsh@laptop", "pdsh@laptop: ", "pdsh@laptop: other: ssh exited with exit code 255",
        "ssh exited with exit code 255", "pdsh@laptop: node1: no route"})
    EXPECT_EQ(ReadPdshFailure(line, kNodes), std::nullopt) << line;
}

TEST(EngineScriptTest, HasNoQuoteThatWouldEndItAndNoSecret) {
  AgentBinary agent;
  agent.build_id = "abc";
  agent.machine = "x86_64";
  agent.size_bytes = 7;
  const EngineStart start{"5eed",
                          "$OMPI_COMM_WORLD_RANK",
                          std::string(64, 'f'),
                          {"10.0.0.1:4711", "fd66::1:4711"},
                          "7e57"};
  const std::string script = EngineScript(agent, std::string(64, 'a'), {}, start);
  EXPECT_THAT(script, Not(HasSubstr("'")));
  EXPECT_THAT(script, HasSubstr("for e in 10.0.0.1/4711 fd66::1/4711;"));
  EXPECT_THAT(script, HasSubstr(" dial --nonce 5eed $OMPI_COMM_WORLD_RANK ffff"));
  EXPECT_THAT(script, HasSubstr("f 10.0.0.1:4711,fd66::1:4711 supervisor --nonce 5eed"));
}

}  // namespace
}  // namespace dslaunch::engine_command_test
