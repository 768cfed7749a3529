#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "cli/per_node/per_node.h"
#include "proto/contract/worker_env.h"

namespace dslaunch::per_node_plan_test {
namespace {

using testing::HasSubstr;

LaunchOptions Options(std::optional<int> node_rank = 1) {
  LaunchOptions options;
  options.num_nodes = 2;
  options.num_gpus = 3;
  options.per_node.emplace();
  options.per_node->node_rank = node_rank;
  options.per_node->host = "127.0.0.1";
  return options;
}

std::vector<Host> Hosts() {
  std::vector<Host> hosts(2);
  hosts[0].name = hosts[0].host = "a";
  hosts[0].slots = 2;
  hosts[1].name = hosts[1].host = "b";
  hosts[1].slots = 4;
  return hosts;
}

pb::Program Program(const std::string& path) {
  pb::Program program;
  program.add_argv(path);
  program.add_argv("--lr=0.1");
  program.add_argv("--hf_token=secret");
  return program;
}

TEST(PerNodePlanTest, AssumesNodesLikeThisUntilTheyJoin) {
  LaunchOptions options = Options();
  options.num_nodes.reset();
  options.min_nodes = 1;
  options.max_nodes = 3;
  const Result<LaunchPlan> flags = DraftPerNodePlan(options, {});
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->launcher, Launcher::kPerNode);
  EXPECT_EQ(flags->min_nodes, 1);
  EXPECT_EQ(flags->max_nodes, 3);
  EXPECT_EQ(flags->world_size(), 9);
  EXPECT_EQ(flags->nodes[2].name, "node2");
  const Result<LaunchPlan> plan = FinishPerNodePlan(*flags, {3, 1, 2}, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->world_size(), 6);
  EXPECT_EQ(plan->ranks.BlockOf(1)->first_rank, 3u);
  EXPECT_EQ(plan->ranks.BlockOf(2)->first_rank, 4u);
  EXPECT_EQ(PlanLine(*plan, "cpu"),
            "1 to 3 nodes with unequal slots = up to 6 ranks (a command each, cpu): node0(3) "
            "node1(1) node2(2)");
  options.shown_ranks = {false, {6}};
  EXPECT_THAT(FinishPerNodePlan(*flags, {3, 1, 2}, options).error().message,
              HasSubstr("--show 6: no such rank"));
}

TEST(PerNodePlanTest, TakesNodesFromHostfile) {
  LaunchOptions options = Options();
  options.num_nodes.reset();
  options.num_gpus.reset();
  PerNodeInfo info;
  info.hostfile = "hf";
  info.hosts = Hosts();
  const Result<LaunchPlan> flags = DraftPerNodePlan(options, info);
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->nodes[1].name, "b");
  EXPECT_EQ(flags->world_size(), 6);
  EXPECT_EQ(MakeAdmissionRequest(options, info, *flags, Program("x")).slots(), 4u);
  options.per_node->node_rank.reset();
  EXPECT_THAT(DraftPerNodePlan(options, info).error().message, HasSubstr("--node_rank N"));
  options.per_node->node_rank = 2;
  EXPECT_THAT(DraftPerNodePlan(options, info).error().message, HasSubstr("--node_rank 2"));
}

TEST(PerNodePlanTest, CountsSlotsOfThisNode) {
  LaunchOptions options = Options();
  options.num_gpus.reset();
  PerNodeInfo info;
  info.host_name = "here";
  info.plan.cores = 5;
  const auto slots = [&] { return DraftPerNodePlan(options, info)->nodes[0].slots; };
  EXPECT_EQ(slots(), 1);
  options.slots_from = SlotsFrom::kAuto;
  EXPECT_EQ(slots(), 5);
  info.plan.local_gpus = 2;
  EXPECT_EQ(slots(), 2);
  options.slots_from = SlotsFrom::kCpu;
  EXPECT_EQ(slots(), 5);
  info.plan.local_gpus = 0;
  options.slots_from = SlotsFrom::kGpu;
  EXPECT_THAT(DraftPerNodePlan(options, info).error().message,
              HasSubstr("here has no accelerator"));
}

TEST(PerNodePlanTest, RequiresTokenBeyondThisMachine) {
  LaunchOptions options = Options();
  options.per_node->port = 29'400;
  for (const char* host : {"localhost", "127.0.0.1", "::1"}) {
    options.per_node->host = host;
    EXPECT_TRUE(DraftPerNodePlan(options, {}).ok()) << host;
  }
  for (const char* host : {"w0", "10.0.0.1", "0.0.0.0", "127.0.1.1", "fe80::1"}) {
    options.per_node->host = host;
    const Result<LaunchPlan> plan = DraftPerNodePlan(options, {});
    ASSERT_FALSE(plan.ok()) << host;
    EXPECT_EQ(plan.error().code, ExitCode::kUsage);
    for (const char* says : {"without a token", "(umask 077; openssl rand -hex 32 > FILE)",
                             "--rdzv_token_file FILE", "--insecure_rdzv", ":29400"})
      EXPECT_THAT(plan.error().message, HasSubstr(says)) << host;
  }
  PerNodeInfo with_descriptor;
  with_descriptor.has_token_descriptor = true;
  EXPECT_TRUE(DraftPerNodePlan(options, with_descriptor).ok());
  LaunchOptions with_file = options;
  with_file.per_node->token_file = "token";
  EXPECT_TRUE(DraftPerNodePlan(with_file, {}).ok());
  LaunchOptions insecure = options;
  insecure.per_node->insecure = true;
  EXPECT_TRUE(DraftPerNodePlan(insecure, {}).ok());
  LaunchOptions alone = options;
  alone.num_nodes = 1;
  alone.per_node->node_rank = 0;
  EXPECT_TRUE(DraftPerNodePlan(alone, {}).ok());
}

TEST(PerNodePlanTest, RequiresTokenForFirstNodeOfHostfile) {
  LaunchOptions options = Options();
  options.num_nodes.reset();
  options.num_gpus.reset();
  options.per_node->host.clear();
  PerNodeInfo info;
  info.hosts = Hosts();
  EXPECT_THAT(DraftPerNodePlan(options, info).error().message, HasSubstr("node 0 at a:29500"));
}

TEST(PerNodePlanTest, RejectsDetach) {
  LaunchOptions options = Options();
  options.detach = true;
  EXPECT_THAT(DraftPerNodePlan(options, {}).error().message, HasSubstr("--detach"));
}

TEST(PerNodePlanTest, FolderAndArgumentsMayDifferBetweenNodes) {
  const LaunchOptions options = Options();
  const LaunchPlan flags = *DraftPerNodePlan(options, {});
  const pb::AdmissionRequest own = MakeAdmissionRequest(options, {}, flags, Program("/a/train.py"));
  pb::Program failed_over = Program("/b/train.py");
  *failed_over.mutable_argv(1) = "--lr=0.2";
  failed_over.set_cwd("/elsewhere");
  failed_over.add_env()->set_name("X");
  failed_over.set_venv_script("/b/activate");
  EXPECT_FALSE(WhyAnotherJob(own, MakeAdmissionRequest(options, {}, flags, failed_over), "w"));
  EXPECT_NE(own.program().arguments(),
            MakeAdmissionRequest(options, {}, flags, failed_over).program().arguments());
  EXPECT_THAT(own.program().shown(), HasSubstr("/a/train.py --lr=0.1 --hf_token=***"));
  pb::Program other_secret = Program("/a/train.py");
  *other_secret.mutable_argv(2) = "--hf_token=another";
  EXPECT_EQ(own.program().arguments(),  // the digest must not depend on the secret
            MakeAdmissionRequest(options, {}, flags, other_secret).program().arguments());
  pb::Program module = Program("/a/train.py");
  module.set_form(pb::Program::MODULE);
  EXPECT_TRUE(WhyAnotherJob(own, MakeAdmissionRequest(options, {}, flags, module), "w"));
  pb::Program trained = Program("/a/train.py");
  trained.add_chosen_env()->set_name(kRecipeVariable);
  trained.mutable_chosen_env(0)->set_value("{}");
  EXPECT_TRUE(WhyAnotherJob(own, MakeAdmissionRequest(options, {}, flags, trained), "w"));
}

TEST(ListenTest, OneCommandOfThisMachineIsNodeZero) {
  PerNode place = *Options(std::nullopt).per_node;
  place.port = 0;
  Result<UniqueFd> first = ListenIfNodeZero(place);
  ASSERT_TRUE(first.ok() && first->valid());
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(getsockname(first->get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  EXPECT_EQ(bound.sin_addr.s_addr, htonl(INADDR_LOOPBACK));  // not reachable from other machines
  place.port = ntohs(bound.sin_port);
  EXPECT_FALSE((*ListenIfNodeZero(place)).valid());
  place.is_host = true;
  EXPECT_EQ(ListenIfNodeZero(place).error().code, ExitCode::kUnavailable);
  place.is_host.reset();
  place.node_rank = 0;
  EXPECT_THAT(ListenIfNodeZero(place).error().message,
              HasSubstr("another command with --node_rank 0"));
  place.node_rank = 1;
  EXPECT_FALSE((*ListenIfNodeZero(place)).valid());
}

TEST(ListenTest, DoesNotListenAtAddressOfAnotherMachine) {
  PerNode place = *Options(std::nullopt).per_node;
  place.host = "192.0.2.77";
  place.port = 0;
  EXPECT_FALSE((*ListenIfNodeZero(place)).valid());
  place.is_host = true;
  EXPECT_TRUE((*ListenIfNodeZero(place)).valid());
}

}  // namespace
}  // namespace dslaunch::per_node_plan_test
