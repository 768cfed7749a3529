#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "cli/per_node/per_node.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
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

TEST(PerNodePlanTest, EachNodeIsTakenToBeLikeThisOneUntilItHasCome) {
  LaunchOptions options = Options();
  options.num_nodes.reset();
  options.min_nodes = 1;
  options.max_nodes = 3;
  const Result<LaunchPlan> draft = DraftPerNodePlan(options, {});
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_EQ(draft->launcher, Launcher::kPerNode);
  EXPECT_EQ(draft->min_nodes, 1);
  EXPECT_EQ(draft->max_nodes, 3);
  EXPECT_EQ(draft->world_size, 9);
  EXPECT_EQ(draft->nodes[2].name, "node2");
  const Result<LaunchPlan> plan = FinishPerNodePlan(*draft, {3, 1, 2}, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->world_size, 6);
  EXPECT_EQ(plan->nodes[1].first_rank, 3);
  EXPECT_EQ(plan->nodes[2].first_rank, 4);
  EXPECT_EQ(PlanLine(*plan, "cpu"),
            "1 to 3 nodes with unequal slots = up to 6 ranks (a command each, cpu): node0(3) "
            "node1(1) node2(2)");
  options.tee = {false, {6}};
  EXPECT_THAT(FinishPerNodePlan(*draft, {3, 1, 2}, options).error().message,
              HasSubstr("--show 6: no such rank"));
}

TEST(PerNodePlanTest, AHostfileNamesTheNodes) {
  LaunchOptions options = Options();
  options.num_nodes.reset();
  options.num_gpus.reset();
  PerNodeFacts facts;
  facts.hostfile = "hf";
  facts.hosts = Hosts();
  const Result<LaunchPlan> draft = DraftPerNodePlan(options, facts);
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_EQ(draft->nodes[1].name, "b");
  EXPECT_EQ(draft->world_size, 6);
  EXPECT_EQ(MakeSeatRequest(options, facts, *draft, Program("x")).slots(), 4u);
  options.per_node->node_rank.reset();
  EXPECT_THAT(DraftPerNodePlan(options, facts).error().message, HasSubstr("--node_rank N"));
  options.per_node->node_rank = 2;
  EXPECT_THAT(DraftPerNodePlan(options, facts).error().message, HasSubstr("--node_rank 2"));
}

TEST(PerNodePlanTest, SlotsAreCountedOnEachNode) {
  LaunchOptions options = Options();
  options.num_gpus.reset();
  PerNodeFacts facts;
  facts.host_name = "here";
  facts.plan.cores = 5;
  const auto slots = [&] { return DraftPerNodePlan(options, facts)->nodes[0].slots; };
  EXPECT_EQ(slots(), 1);
  options.slots_from = SlotsFrom::kAuto;
  EXPECT_EQ(slots(), 5);
  facts.plan.local_gpus = 2;
  EXPECT_EQ(slots(), 2);
  options.slots_from = SlotsFrom::kCpu;
  EXPECT_EQ(slots(), 5);
  facts.plan.local_gpus = 0;
  options.slots_from = SlotsFrom::kGpu;
  EXPECT_THAT(DraftPerNodePlan(options, facts).error().message,
              HasSubstr("here has no NVIDIA GPU"));
}

TEST(PerNodePlanTest, AnEndOfCommandsEndsTheJobSoItCannotBeDetached) {
  LaunchOptions options = Options();
  options.detach = true;
  EXPECT_THAT(DraftPerNodePlan(options, {}).error().message, HasSubstr("--detach"));
}

TEST(PerNodePlanTest, TheSameProgramInAnotherFolderAndWithOtherArgumentsIsTheSame) {
  const LaunchOptions options = Options();
  const LaunchPlan draft = *DraftPerNodePlan(options, {});
  const pb::SeatRequest own = MakeSeatRequest(options, {}, draft, Program("/a/train.py"));
  pb::Program moved = Program("/b/train.py");
  *moved.mutable_argv(1) = "--lr=0.2";
  moved.set_cwd("/elsewhere");
  moved.add_env()->set_name("X");
  moved.set_venv_script("/b/activate");
  EXPECT_FALSE(WhyAnotherJob(own, MakeSeatRequest(options, {}, draft, moved), "w"));
  EXPECT_NE(own.program().arguments(),
            MakeSeatRequest(options, {}, draft, moved).program().arguments());
  EXPECT_THAT(own.program().shown(), HasSubstr("/a/train.py --lr=0.1 --hf_token=***"));
  pb::Program module = Program("/a/train.py");
  module.set_form(pb::Program::MODULE);
  EXPECT_TRUE(WhyAnotherJob(own, MakeSeatRequest(options, {}, draft, module), "w"));
  pb::Program trained = Program("/a/train.py");
  trained.add_chosen_env()->set_name(kRecipeVariable);
  trained.mutable_chosen_env(0)->set_value("{}");
  EXPECT_TRUE(WhyAnotherJob(own, MakeSeatRequest(options, {}, draft, trained), "w"));
}

TEST(ListenTest, OneOfThisMachinesCommandsIsNodeZero) {
  PerNode place = *Options(std::nullopt).per_node;
  place.port = 0;
  Result<UniqueFd> first = ListenIfNodeZero(place);
  ASSERT_TRUE(first.ok() && first->valid());
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(getsockname(first->get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  EXPECT_EQ(bound.sin_addr.s_addr, htonl(INADDR_LOOPBACK));  // for this machine alone
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

TEST(ListenTest, AnotherMachinesAddressIsAnotherCommands) {
  PerNode place = *Options(std::nullopt).per_node;
  place.host = "192.0.2.77";
  place.port = 0;
  EXPECT_FALSE((*ListenIfNodeZero(place)).valid());
  place.is_host = true;
  EXPECT_TRUE((*ListenIfNodeZero(place)).valid());
}

}  // namespace
}  // namespace dslaunch
