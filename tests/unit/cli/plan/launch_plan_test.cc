#include "cli/plan/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/plan/device_decision.h"

namespace dslaunch::launch_plan_test {
namespace {

using testing::HasSubstr;

LaunchOptions Options(std::optional<int> num_nodes, std::optional<int> num_gpus,
                      std::optional<Launcher> launcher = std::nullopt,
                      std::optional<std::string> hostfile = std::nullopt) {
  LaunchOptions options;
  options.num_nodes = num_nodes;
  options.num_gpus = num_gpus;
  options.launcher = launcher;
  options.hostfile = std::move(hostfile);
  return options;
}

std::vector<Host> Hosts(const std::vector<int>& slots) {
  std::vector<Host> hosts;
  for (size_t i = 0; i < slots.size(); ++i) {
    const int line = static_cast<int>(i) + 1;
    const std::string host = "node" + std::to_string(line);
    hosts.push_back({{"u@" + host, host, 2200 + line, "u"}, slots[i], line});
  }
  return hosts;
}

LaunchOptions Elastic(int min_nodes, std::optional<int> max_nodes,
                      std::optional<std::string> hostfile = "hf") {
  LaunchOptions options = Options({}, 2, {}, std::move(hostfile));
  options.min_nodes = min_nodes;
  options.max_nodes = max_nodes;
  return options;
}

std::vector<Host> HostsWithSpare(const std::vector<int>& slots, size_t spare) {
  std::vector<Host> hosts = Hosts(slots);
  hosts.at(spare).spare = true;
  return hosts;
}

struct GoodPlan {
  LaunchOptions options;
  std::optional<std::vector<Host>> hosts;
  PlanInfo info;
  std::string line;
};

TEST(MakeLaunchPlan, FormatsPlanLines) {
  const auto N = std::nullopt;
  const GoodPlan cases[] = {
      {Options(N, N),
       N,
       {},
       "1 node x 1 slot = 1 rank (local, cpu): localhost (1 slot per node as this machine has no "
       "GPU; --num_gpus N starts more)"},
      {Options(N, N),
       N,
       {false, 8},
       "1 node x 8 slots = 8 ranks (local, cpu): localhost (slots from the 8 GPUs of this "
       "machine)"},
      {Options(N, 4), N, {false, 8}, "1 node x 4 slots = 4 ranks (local, cpu): localhost"},
      {Options(1, 2), N, {}, "1 node x 2 slots = 2 ranks (local, cpu): localhost"},
      {Options(2, 2, Launcher::kLocal),
       N,
       {},
       "2 nodes x 2 slots = 4 ranks (local, cpu): node0 node1"},
      {Options(2, N, Launcher::kLocal),
       N,
       {false, 8},
       "2 nodes x 4 slots = 8 ranks (local, cpu): node0 node1 (slots from the 8 GPUs of this "
       "machine)"},
      {Options(2, N, Launcher::kLocal),
       N,
       {false, 1},
       "2 nodes x 1 slot = 2 ranks (local, cpu): node0 node1 (slots from the 1 GPU of this "
       "machine)"},
      {Options(N, N, N, "hf"),
       Hosts({2, 2}),
       {},
       "2 nodes x 2 slots = 4 ranks (ssh, cpu): u@node1 u@node2"},
      {Options(N, N, N, "hf"),
       Hosts({2, 4}),
       {},
       "2 nodes with unequal slots = 6 ranks (ssh, cpu): u@node1(2) u@node2(4)"},
      {Options(N, 2, N, "hf"),
       Hosts({2, 4}),
       {},
       "2 nodes x 2 slots = 4 ranks (ssh, cpu): u@node1 u@node2"},
      {Options(2, N, N, "hf"),
       Hosts({1, 1, 9}),
       {},
       "2 nodes x 1 slot = 2 ranks (ssh, cpu): u@node1 u@node2"},
      {Options(N, N, Launcher::kLocal, "hf"),
       Hosts({2, 2}),
       {},
       "2 nodes x 2 slots = 4 ranks (local, cpu): u@node1 u@node2"},
      {Options(2, 2),
       Hosts({2, 2}),
       {true, 0},
       "2 nodes x 2 slots = 4 ranks (ssh, cpu): u@node1 u@node2"},
      {Options(N, 1, N, "hf"),
       Hosts({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}),
       {},
       "10 nodes x 1 slot = 10 ranks (ssh, cpu): u@node1 u@node2 u@node3 u@node4 u@node5 u@node6 "
       "u@node7 u@node8 and 2 more"},
      {Options(N, N, N, "hf"),
       HostsWithSpare({2, 2, 2}, 2),
       {},
       "2 nodes x 2 slots = 4 ranks (ssh, cpu): u@node1 u@node2, spare: u@node3"},
      {Options(1, N, N, "hf"),
       HostsWithSpare({2, 2, 2}, 0),
       {},
       "1 node x 2 slots = 2 ranks (ssh, cpu): u@node2, spare: u@node1"},
      {Elastic(2, 3),
       Hosts({2, 2, 2, 2, 2}),
       {},
       "2 to 3 nodes x 2 slots = up to 6 ranks (ssh, cpu): u@node1 u@node2 u@node3, "
       "spares: u@node4 u@node5"},
      {Elastic(1, N),
       HostsWithSpare({2, 4, 2}, 2),
       {},
       "1 to 2 nodes x 2 slots = up to 4 ranks (ssh, cpu): u@node1 u@node2, spare: u@node3"},
      {Elastic(2, 2),
       Hosts({2, 2, 2}),
       {},
       "2 nodes x 2 slots = 4 ranks (ssh, cpu): u@node1 u@node2, spare: u@node3"},
  };
  for (const GoodPlan& c : cases) {
    SCOPED_TRACE(c.line);
    const auto plan = MakeLaunchPlan(c.options, c.hosts, c.info);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(PlanLine(*plan, "cpu"), c.line);
  }
}

TEST(MakeLaunchPlan, NumbersRanksInOrderOfHostfile) {
  const auto plan = MakeLaunchPlan(Options({}, {}, {}, "hf"), Hosts({2, 4, 1}), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->world_size(), 7);
  EXPECT_EQ(plan->launcher, Launcher::kSsh);
  ASSERT_EQ(plan->nodes.size(), 3u);
  EXPECT_EQ(plan->ranks.BlockOf(0)->first_rank, 0u);
  EXPECT_EQ(plan->ranks.BlockOf(1)->first_rank, 2u);
  EXPECT_EQ(plan->ranks.BlockOf(2)->first_rank, 6u);
  EXPECT_EQ(plan->nodes[2].name, "u@node3");
  EXPECT_EQ(plan->nodes[2].host, "node3");
  EXPECT_EQ(plan->nodes[2].user, "u");
  EXPECT_EQ(plan->nodes[2].port, 2203);
}

TEST(MakeLaunchPlan, SparesHaveNoRanksAndAreNotCounted) {
  const auto plan = MakeLaunchPlan(Options({}, {}, {}, "hf"), HostsWithSpare({2, 4, 1}, 1), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->world_size(), 3);
  EXPECT_EQ(plan->min_nodes, 2);
  EXPECT_EQ(plan->max_nodes, 2);
  ASSERT_EQ(plan->nodes.size(), 3u);
  EXPECT_TRUE(plan->nodes[1].spare);
  EXPECT_EQ(plan->ranks.BlockOf(2)->first_rank, 2u);
}

TEST(MakeLaunchPlan, ElasticJobRunsLocallyWithMaxNodes) {
  LaunchOptions options = Elastic(2, 3, std::nullopt);
  options.launcher = Launcher::kLocal;
  const auto plan = MakeLaunchPlan(options, std::nullopt, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->nodes.size(), 3u);
  EXPECT_EQ(plan->min_nodes, 2);
  EXPECT_EQ(plan->max_nodes, 3);
}

struct BadPlan {
  LaunchOptions options;
  std::optional<std::vector<Host>> hosts;
  std::vector<std::string> said;
};

TEST(MakeLaunchPlan, ErrorsHaveReasonAndHint) {
  const auto N = std::nullopt;
  LaunchOptions shown_ranks = Options(1, 2);
  shown_ranks.shown_ranks.ranks = {0, 2};
  const BadPlan cases[] = {
      {Options(2, 2),
       N,
       {"--num_nodes 2", "--hostfile FILE", "'NAME slots=N'", "--launcher local"}},
      {Options(2, 2, Launcher::kSsh),
       N,
       {"--launcher ssh needs to know the nodes", "--hostfile FILE"}},
      {Options(3, N, N, "my/hf"), Hosts({2, 2}), {"--num_nodes 3", "my/hf has only 2 nodes"}},
      {Options(2, N), Hosts({2}), {"--num_nodes 2", "/job/hostfile has only 1 node;"}},
      {Options(N, 3, N, "my/hf"), Hosts({4, 2}), {"--num_gpus 3", "u@node2 has slots=2 (my/hf:2)"}},
      {Options(2, N, N, "my/hf"),
       HostsWithSpare({2, 2}, 1),
       {"--num_nodes 2", "my/hf has only 1 node besides its spares;"}},
      {Options(N, N, N, "my/hf"), HostsWithSpare({2}, 0), {"every node of my/hf is a spare"}},
      {Elastic(2, 4), Hosts({2, 2, 2}), {"up to 4 nodes", "hf has only 3 nodes;"}},
      {Elastic(3, N), Hosts({2, 2}), {"up to 3 nodes", "hf has only 2 nodes;"}},
      {Elastic(2, 3, N), N, {"up to 3 nodes needs to know the nodes", "--launcher local"}},
      {shown_ranks, N, {"--show 2: no such rank", "ranks 0 to 1"}},
  };
  for (const BadPlan& c : cases) {
    const auto plan = MakeLaunchPlan(c.options, c.hosts, {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ExitCode::kUsage);
    for (const std::string& said : c.said) EXPECT_THAT(plan.error().message, HasSubstr(said));
  }
}

TEST(MakeLaunchPlan, IgnoresSlotsOfUnusedNodes) {
  EXPECT_TRUE(MakeLaunchPlan(Options(1, 4, {}, "hf"), Hosts({4, 2}), {}).ok());
}

TEST(MakeLaunchPlan, NumProcFillsFirstNodes) {
  const auto with_ranks = [](int ranks, std::optional<int> num_gpus = {}) {
    LaunchOptions options = Options({}, num_gpus);
    options.num_ranks = ranks;
    return options;
  };
  struct {
    LaunchOptions options;
    std::optional<std::vector<Host>> hosts;
    std::vector<int> slots;
  } cases[] = {
      {with_ranks(8), Hosts({4, 4}), {4, 4}},
      {with_ranks(5), Hosts({4, 4}), {4, 1}},
      {with_ranks(4), Hosts({4, 4}), {4}},
      {with_ranks(3, 2), Hosts({4, 4, 4}), {2, 1}},
      {with_ranks(3), {}, {3}},
  };
  for (const auto& c : cases) {
    const auto plan = MakeLaunchPlan(c.options, c.hosts, {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    std::vector<int> slots;
    for (const Host& node : plan->nodes) slots.push_back(node.slots);
    EXPECT_EQ(slots, c.slots);
    EXPECT_EQ(plan->world_size(), *c.options.num_ranks);
  }
  const auto too_many = MakeLaunchPlan(with_ranks(9), Hosts({4, 4}), {});
  ASSERT_FALSE(too_many.ok());
  EXPECT_THAT(too_many.error().message, HasSubstr("--num_proc 9, but 2 nodes have 8 slots"));
}

LaunchOptions RankRange(int min, std::optional<int> max, std::optional<int> begins_with = {},
                        std::optional<int> num_gpus = {}) {
  LaunchOptions options = Options({}, num_gpus);
  options.min_ranks = min;
  options.max_ranks = max;
  options.num_ranks = begins_with;
  return options;
}

TEST(MakeLaunchPlan, TurnsRangeOfRanksIntoRangeOfNodes) {
  const auto N = std::nullopt;
  struct {
    LaunchOptions options;
    std::optional<std::vector<Host>> hosts;
    int min_nodes, start_nodes, max_nodes, spares;
  } cases[] = {
      {RankRange(4, 8), Hosts({4, 4, 4}), 1, 1, 2, 1},
      {RankRange(4, 8, 8), Hosts({4, 4, 4}), 1, 2, 2, 1},
      {RankRange(4, N, 5), Hosts({4, 4, 4}), 1, 2, 3, 0},
      {RankRange(5, 12), Hosts({4, 4, 4}), 2, 2, 3, 0},
      {RankRange(1, 14), Hosts({4, 4, 4}), 1, 1, 3, 0},  // the hosts have only 12 slots
      {RankRange(2, 4, N, 2), Hosts({4, 2}), 1, 1, 2, 0},
      {RankRange(4, 8), HostsWithSpare({4, 4, 4}, 1), 1, 1, 2, 1},
      {RankRange(1, 2, 2), N, 1, 1, 1, 0},
  };
  for (const auto& c : cases) {
    const auto plan = MakeLaunchPlan(c.options, c.hosts, {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->min_nodes, c.min_nodes);
    EXPECT_EQ(plan->start_nodes, c.start_nodes);
    EXPECT_EQ(plan->max_nodes, c.max_nodes);
    EXPECT_EQ(std::ranges::count_if(plan->nodes, &Host::spare), c.spares);
  }
}

TEST(MakeLaunchPlan, RejectsRangeOfRanksThatSplitsNodes) {
  const auto N = std::nullopt;
  const BadPlan cases[] = {
      {RankRange(2, 4), Hosts({4, 2}), {"u@node1 has 4 slots and u@node2 has 2", "--num_gpus N"}},
      {RankRange(4, 6), Hosts({4, 4}), {"--max_np 6", "4 ranks each; ask for 4 or 8,"}},
      {RankRange(1, 3), Hosts({4, 4}), {"--max_np 3", "; ask for 4,"}},
      {RankRange(5, 7), Hosts({4, 4}), {"--max_np 7", "; ask for 8,"}},
      {RankRange(9, N), Hosts({4, 4}), {"--min_np 9, but 2 nodes have 8 slots"}},
      {RankRange(1, N, 9), Hosts({4, 4}), {"-np 9, but 2 nodes have 8 slots"}},
  };
  for (const BadPlan& c : cases) {
    const auto plan = MakeLaunchPlan(c.options, c.hosts, {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ExitCode::kUsage);
    for (const std::string& said : c.said) EXPECT_THAT(plan.error().message, HasSubstr(said));
  }
}

TEST(HostfileFor, IsEmptyIfHostsAreGiven) {
  LaunchOptions options;
  options.hosts = "w0 slots=2\n";
  PlanInfo info;
  info.default_hostfile_exists = true;
  EXPECT_EQ(HostfileFor(options, info), std::nullopt);
  EXPECT_FALSE(UsesSlurm(options, info));
}

TEST(HostfileFor, OnlyLocalLauncherIgnoresDefault) {
  const PlanInfo exists{true, 0};
  EXPECT_EQ(HostfileFor(Options({}, {}), exists), "/job/hostfile");
  EXPECT_EQ(HostfileFor(Options({}, {}, Launcher::kSsh), exists), "/job/hostfile");
  EXPECT_EQ(HostfileFor(Options({}, {}, Launcher::kLocal), exists), std::nullopt);
  EXPECT_EQ(HostfileFor(Options({}, {}), {}), std::nullopt);
  EXPECT_EQ(HostfileFor(Options({}, {}, Launcher::kLocal, "hf"), exists), "hf");
}

LaunchOptions Filtered(std::string include, std::string exclude,
                       std::optional<std::string> hostfile = "hf") {
  LaunchOptions options = Options({}, {}, {}, std::move(hostfile));
  if (!include.empty()) options.include = include;
  if (!exclude.empty()) options.exclude = exclude;
  return options;
}

TEST(MakeLaunchPlan, FilterChoosesNodesSlotsAndDevices) {
  auto plan = MakeLaunchPlan(Filtered("node3@node1:1,0,3", ""), Hosts({4, 4, 2}), {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(PlanLine(*plan, "cuda"),
            "2 nodes with unequal slots = 5 ranks (ssh, cuda): u@node1(3) u@node3(2)");
  EXPECT_THAT(plan->nodes[0].devices, testing::ElementsAre(0, 1, 3));
  EXPECT_THAT(plan->nodes[1].devices, testing::IsEmpty());
  EXPECT_EQ(plan->ranks.BlockOf(1)->first_rank, 3u);
  plan = MakeLaunchPlan(Filtered("", "node1@node3:0"), Hosts({4, 4, 2}), {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->world_size(), 5);
  EXPECT_THAT(plan->nodes[1].devices, testing::ElementsAre(1));
  plan = MakeLaunchPlan(Filtered("node9", ""), Hosts({4}), {});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("--include: 'node9': no such node in hf"));
  plan = MakeLaunchPlan(Filtered("node1", ""), HostsWithSpare({2, 2}, 0), {});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("every node that is left of hf is a spare"));
}

TEST(MakeLaunchPlan, FilterWithoutHostfileChoosesLocalDevices) {
  PlanInfo info;
  info.installed_gpus = 8;
  info.local_gpus = 2;
  info.device_limits = "CUDA_VISIBLE_DEVICES=4,5";
  auto plan = MakeLaunchPlan(Filtered("localhost:0,6", "", {}), std::nullopt, info);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->launcher, Launcher::kLocal);
  EXPECT_EQ(plan->nodes[0].slots, 2);
  EXPECT_THAT(plan->nodes[0].devices, testing::ElementsAre(0, 6));
  EXPECT_EQ(plan->slots_note,
            "CUDA_VISIBLE_DEVICES=4,5 is not used, as --include chooses the GPUs");
  plan = MakeLaunchPlan(Filtered("localhost:8", "", {}), std::nullopt, info);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("no slot 8: localhost has slots 0 to 7"));
  PlanInfo no_gpus;
  no_gpus.cores = 4;
  plan = MakeLaunchPlan(Filtered("", "localhost:0", {}), std::nullopt, no_gpus);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->world_size(), 3);
  EXPECT_EQ(plan->slots_note, "of the 4 cores of this machine, as it has no GPU");
}

TEST(MakeLaunchPlan, CudaVisibleDevicesLimitsSlots) {
  PlanInfo info;
  info.installed_gpus = 8;
  info.local_gpus = 2;
  info.device_limits = "CUDA_VISIBLE_DEVICES=4,5";
  EXPECT_EQ(MakeLaunchPlan(Options({}, {}), std::nullopt, info)->world_size(), 2);
  EXPECT_TRUE(MakeLaunchPlan(Options({}, 2), std::nullopt, info).ok());
  auto plan = MakeLaunchPlan(Options({}, 4), std::nullopt, info);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().message,
            "--num_gpus 4, but CUDA_VISIBLE_DEVICES=4,5 shows 2 GPUs; unset it, ask for 2 or "
            "fewer, or add --device cpu");
  plan = MakeLaunchPlan(Options(2, 2, Launcher::kLocal), std::nullopt, info);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("2 nodes x --num_gpus 2 = 4 ranks on this machine"));
  EXPECT_THAT(plan.error().message, HasSubstr("ask for 1 or fewer"));
  LaunchOptions on_cpu = Options({}, 4);
  on_cpu.device = DeviceChoice::kCpu;
  EXPECT_TRUE(MakeLaunchPlan(on_cpu, std::nullopt, info).ok());
  info.local_gpus = 0;
  info.device_limits = "CUDA_VISIBLE_DEVICES=";  // shows no GPU, so the CPU is used
  EXPECT_TRUE(MakeLaunchPlan(Options({}, 4), std::nullopt, info).ok());
  info.gpu_trouble = "CUDA_VISIBLE_DEVICES=4,4 names 4 twice";
  EXPECT_THAT(MakeLaunchPlan(Options({}, {}), std::nullopt, info).error().message,
              HasSubstr("names 4 twice"));
  EXPECT_TRUE(MakeLaunchPlan(on_cpu, std::nullopt, info).ok());
}

TEST(MakeLaunchPlan, CountsSlotsOfThisMachineOnly) {
  PlanInfo info;
  info.local_gpus = info.installed_gpus = 4;
  info.cores = 96;
  struct {
    SlotsFrom from;
    int gpus;
    int nodes;
    int slots;
    const char* note;
  } const cases[] = {
      {SlotsFrom::kAuto, 4, 1, 4, "slots from the 4 GPUs of this machine"},
      {SlotsFrom::kAuto, 0, 1, 96, "slots from the 96 cores of this machine"},
      {SlotsFrom::kCpu, 4, 1, 96, "slots from the 96 cores of this machine"},
      {SlotsFrom::kCpu, 4, 2, 48, "slots from the 96 cores of this machine"},
      {SlotsFrom::kGpu, 4, 2, 2, "slots from the 4 GPUs of this machine"},
  };
  for (const auto& c : cases) {
    LaunchOptions options = Options(c.nodes, {}, Launcher::kLocal);
    options.slots_from = c.from;
    info.local_gpus = c.gpus;
    const auto plan = MakeLaunchPlan(options, std::nullopt, info);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->nodes[0].slots, c.slots);
    EXPECT_EQ(plan->slots_note, c.note);
  }
  LaunchOptions options = Options({}, {});
  options.slots_from = SlotsFrom::kGpu;
  info.local_gpus = 0;
  auto plan = MakeLaunchPlan(options, std::nullopt, info);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().message,
            "--nproc_per_node gpu: this machine has 0 GPUs; give a number, or cpu");
  options.slots_from = SlotsFrom::kAuto;
  options.hostfile = "hf";
  plan = MakeLaunchPlan(options, Hosts({2, 2}), info);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("--nproc_per_node auto: the slots in hf set"));
}

TEST(MakeLaunchPlan, RejectsUnknownVariablesOfUntrustedHostfile) {
  LaunchOptions options = Options({}, {}, {}, "hf");
  std::vector<Host> hosts = Hosts({2, 2});
  hosts[1].env = {{"NCCL_DEBUG", "INFO"}, {"RANK", "1"}, {"PERLLIB", "./evil"}};
  EXPECT_TRUE(MakeLaunchPlan(options, hosts, {}).ok());
  options.hostfile_is_trusted = false;
  const auto plan = MakeLaunchPlan(options, hosts, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ExitCode::kBadInput);
  EXPECT_THAT(plan.error().message, HasSubstr("hf:2: PERLLIB is not among the variables"));
  EXPECT_THAT(plan.error().message, HasSubstr("give --hostfile hf there"));
}

TEST(MakeLaunchPlan, OnlyNodeOnThisMachineNeedsNoSsh) {
  PlanInfo info;
  info.own_names = {"localhost", "127.0.0.1", "::1", "here.example", "here"};
  info.user = "alice";
  const auto launcher = [&](const std::string& file, auto change) {
    LaunchOptions options = Options({}, {}, {}, "hf");
    change(options);
    const auto plan = MakeLaunchPlan(
        options, ParseHostfile(file, "hf").ok() ? *ParseHostfile(file, "hf") : std::vector<Host>{},
        info);
    EXPECT_TRUE(plan.ok()) << file;
    return plan.ok() ? plan->launcher : Launcher::kLocal;
  };
  const auto nothing = [](LaunchOptions&) {};
  for (const char* file : {"localhost slots=2", "127.0.0.1 slots=1", "here slots=1",
                           "alice@here.example slots=1", "[::1] slots=2"})
    EXPECT_EQ(launcher(file, nothing), Launcher::kLocal) << file;
  for (const char* file :
       {"there slots=2", "bob@localhost slots=1", "localhost:2222 slots=1",
        "localhost slots=1\nthere slots=1", "localhost slots=1\nthere slots=1 spare=true"})
    EXPECT_EQ(launcher(file, nothing), Launcher::kSsh) << file;
  const char* here = "localhost slots=2";
  EXPECT_EQ(launcher(here, [](LaunchOptions& o) { o.force_multi = true; }), Launcher::kSsh);
  EXPECT_EQ(launcher(here, [](LaunchOptions& o) { o.launcher = Launcher::kSsh; }), Launcher::kSsh);
  EXPECT_EQ(launcher(here, [](LaunchOptions& o) { o.ssh_port = 2222; }), Launcher::kSsh);
  EXPECT_EQ(launcher(here, [](LaunchOptions& o) { o.ssh_command = {"ssh"}; }), Launcher::kSsh);
  EXPECT_EQ(launcher("localhost slots=1\nthere slots=1",
                     [](LaunchOptions& o) { o.include = "localhost"; }),
            Launcher::kLocal);
}

PlanInfo InSlurm(int tasks, int gpus) {
  PlanInfo info;
  SlurmAllocation allocation;
  allocation.job_id = "7";
  allocation.nodes = {{"n1", tasks, 16, gpus}, {"n2", tasks, 16, gpus}};
  allocation.gpus_unknown.clear();
  info.slurm = std::optional(std::move(allocation));
  return info;
}

TEST(MakeLaunchPlan, SlurmNodesHaveTasksElseGpusElseOneSlot) {
  const auto line = [](int tasks, int gpus, auto change) {
    LaunchOptions options;
    change(options);
    const auto plan = MakeLaunchPlan(options, std::nullopt, InSlurm(tasks, gpus));
    return plan.ok() ? PlanLine(*plan, "cpu") : plan.error().message;
  };
  const auto nothing = [](LaunchOptions&) {};
  const std::string begin = "2 nodes x ";
  EXPECT_EQ(line(4, 8, nothing),
            begin +
                "4 slots = 8 ranks (slurm, cpu): n1 n2 (slots from the tasks that Slurm was "
                "asked for)");
  EXPECT_EQ(line(1, 8, nothing),
            begin + "8 slots = 16 ranks (slurm, cpu): n1 n2 (slots from the GPUs that Slurm gave)");
  EXPECT_EQ(line(1, 0, nothing),
            begin +
                "1 slot = 2 ranks (slurm, cpu): n1 n2 (1 slot per node as Slurm gave no GPUs; "
                "--num_gpus N starts more)");
  EXPECT_EQ(line(4, 8, [](LaunchOptions& o) { o.num_gpus = 3; }),
            begin + "3 slots = 6 ranks (slurm, cpu): n1 n2");
  EXPECT_EQ(line(4, 0, [](LaunchOptions& o) { o.slots_from = SlotsFrom::kAuto; }),
            begin +
                "16 slots = 32 ranks (slurm, cpu): n1 n2 (slots from the cores that Slurm "
                "gave)");
  EXPECT_THAT(line(4, 0, [](LaunchOptions& o) { o.slots_from = SlotsFrom::kGpu; }),
              HasSubstr("job 7 of Slurm has no GPUs"));
}

TEST(MakeLaunchPlan, UnequalGpusOfSlurmGiveUnequalSlots) {
  PlanInfo info = InSlurm(1, 4);
  (*info.slurm)->nodes[1].gpus = 2;
  const auto plan = MakeLaunchPlan({}, std::nullopt, info);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(PlanLine(*plan, "cuda"),
            "2 nodes with unequal slots = 6 ranks (slurm, cuda): n1(4) n2(2) (slots from the GPUs "
            "that Slurm gave)");
  EXPECT_EQ(plan->slurm_shares.size(), 2u);
  EXPECT_THAT(plan->exec_command, testing::ElementsAre("srun", "--jobid=7"));
}

TEST(MakeLaunchPlan, ReportsThatGpusOfSlurmAreNotKnown) {
  PlanInfo info = InSlurm(1, 0);
  (*info.slurm)->gpus_unknown = "there is no scontrol in PATH";
  const auto plan = MakeLaunchPlan({}, std::nullopt, info);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->slots_note,
            "1 slot per node as its GPUs are not known: there is no scontrol in PATH; --num_gpus N "
            "starts more");
  LaunchOptions options;
  options.slots_from = SlotsFrom::kGpu;
  EXPECT_THAT(MakeLaunchPlan(options, std::nullopt, info).error().message,
              HasSubstr("its GPUs are not known (there is no scontrol in PATH)"));
}

TEST(MakeLaunchPlan, ThisMachineAmongOthersNeedsNoSsh) {
  PlanInfo info;
  info.own_names = {"here", "10.0.0.1"};
  info.user = "alice";
  const auto is_here = [&](const char* file, auto change) {
    LaunchOptions options;
    change(options);
    const auto plan = MakeLaunchPlan(options, *ParseHostfile(file, "hosts"), info);
    EXPECT_TRUE(plan.ok() && plan->launcher == Launcher::kSsh && !plan->nodes[1].is_here) << file;
    return plan->nodes[0].is_here;
  };
  const auto nothing = [](LaunchOptions&) {};
  const char* file = "here slots=1\nthere slots=1";
  EXPECT_TRUE(is_here(file, nothing));
  EXPECT_TRUE(is_here("10.0.0.1 slots=1\nthere slots=1", nothing));
  EXPECT_TRUE(is_here("alice@here slots=1\nthere slots=1", nothing));
  EXPECT_TRUE(is_here(file, [](LaunchOptions& o) { o.ssh_command = {"ssh", "-v"}; }));
  EXPECT_FALSE(is_here("bob@here slots=1\nthere slots=1", nothing));
  EXPECT_FALSE(is_here("here:2222 slots=1\nthere slots=1", nothing));
  EXPECT_FALSE(is_here(file, [](LaunchOptions& o) { o.ssh_port = 2222; }));
  EXPECT_FALSE(is_here(file, [](LaunchOptions& o) { o.force_multi = true; }));
  EXPECT_FALSE(is_here(file, [](LaunchOptions& o) { o.launcher = Launcher::kSsh; }));
  EXPECT_THAT(PlanLine(*MakeLaunchPlan({}, *ParseHostfile(file, "hosts"), info), "cpu"),
              HasSubstr("(here is this machine and is started without SSH)"));
}

PlanInfo InBatchJob(std::vector<std::string> names, int gpus) {
  PlanInfo info;
  info.own_names = {"here"};
  info.local_gpus = info.installed_gpus = gpus;
  info.batch.emplace().variable = "PBS_NODEFILE";
  for (std::string& name : names) {
    Host& host = info.batch->hosts.emplace_back();
    host.name = host.host = std::move(name);
    host.slots = 2;
  }
  return info;
}

TEST(MakeLaunchPlan, UsesNodesOfBatchSystem) {
  const auto line = [](int gpus, auto change) {
    LaunchOptions options;
    change(options);
    const auto plan = MakeLaunchPlan(options, std::nullopt, InBatchJob({"here", "there"}, gpus));
    return plan.ok() ? PlanLine(*plan, "cpu") : plan.error().message;
  };
  const auto nothing = [](LaunchOptions&) {};
  EXPECT_EQ(
      line(0, nothing),
      "2 nodes x 2 slots = 4 ranks (ssh, cpu): here there (nodes and slots from PBS_NODEFILE) "
      "(here is this machine and is started without SSH)");
  EXPECT_THAT(line(8, nothing),
              HasSubstr("2 nodes x 8 slots = 16 ranks (ssh, cpu): here there (nodes from "
                        "PBS_NODEFILE, slots from the 8 GPUs of this machine)"));
  EXPECT_THAT(line(8, [](LaunchOptions& o) { o.slots_from = SlotsFrom::kCpu; }),
              HasSubstr("2 nodes x 2 slots"));
  EXPECT_THAT(line(0, [](LaunchOptions& o) { o.num_gpus = 5; }), HasSubstr("2 nodes x 5 slots"));
  EXPECT_THAT(line(0, [](LaunchOptions& o) { o.num_nodes = 3; }),
              HasSubstr("PBS_NODEFILE has only 2 nodes"));
  EXPECT_THAT(line(0, [](LaunchOptions& o) { o.launcher = Launcher::kLocal; }),
              HasSubstr("1 node x 1 slot = 1 rank (local"));
}

TEST(MakeLaunchPlan, IgnoresBatchListOfThisMachineAlone) {
  const auto plan = MakeLaunchPlan({}, std::nullopt, InBatchJob({"here"}, 4));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(PlanLine(*plan, "cuda"),
            "1 node x 4 slots = 4 ranks (local, cuda): localhost (slots from the 4 GPUs of this "
            "machine)");
}

TEST(MakeLaunchPlan, ReportsUnusableListOfBatchSystem) {
  PlanInfo info = InBatchJob({}, 0);
  info.batch->unusable = "/x: No such file or directory";
  const auto plan = MakeLaunchPlan({}, std::nullopt, info);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(PlanLine(*plan, "cpu"),
              HasSubstr("PBS_NODEFILE is not used: /x: No such file or directory"));
}

TEST(MakeLaunchPlan, RejectsSshOptionsForSlurmNodes) {
  LaunchOptions options;
  options.ssh_command = {"ssh", "-v"};
  const auto plan = MakeLaunchPlan(options, std::nullopt, InSlurm(1, 0));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ExitCode::kUsage);
  EXPECT_THAT(plan.error().message, HasSubstr("--ssh_command is for SSH"));
}

TEST(MakeLaunchPlan, SetsIndexOfEachNode) {
  const auto plan = MakeLaunchPlan({}, std::nullopt, InSlurm(1, 0));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->nodes[0].index, 0u);
  EXPECT_EQ(plan->nodes[1].index, 1u);
}

TEST(MakeLaunchPlan, UnreadableAllocationFailsOnlyJobsOfSlurm) {
  PlanInfo info;
  info.slurm = Error{ExitCode::kBadInput, "SLURM_JOB_NODELIST is odd"};
  EXPECT_TRUE(MakeLaunchPlan(Options(1, 1, Launcher::kLocal), std::nullopt, info).ok());
  EXPECT_TRUE(MakeLaunchPlan(Options({}, {}, {}, "hf"), Hosts({2, 2}), info).ok());
  for (const auto launcher : {std::optional<Launcher>(), std::optional(Launcher::kSlurm)}) {
    const auto plan = MakeLaunchPlan(Options({}, {}, launcher), std::nullopt, info);
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(plan.error().message,
                HasSubstr("SLURM_JOB_NODELIST is odd; --launcher local or --hostfile FILE"));
  }
}

TEST(MakeLaunchPlan, ForceMultiUsesSshForThisMachine) {
  LaunchOptions options = Options({}, 2);
  options.force_multi = true;
  const auto plan = MakeLaunchPlan(options, std::nullopt, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->launcher, Launcher::kSsh);
  EXPECT_EQ(plan->nodes[0].host, "localhost");
  options.launcher = Launcher::kLocal;
  const auto refused = MakeLaunchPlan(options, std::nullopt, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--force_multi"));
}

TEST(MakeLaunchPlan, HostfilePortOverridesOption) {
  LaunchOptions options = Options({}, {}, {}, "hf");
  options.ssh_port = 2222;
  const auto plan = MakeLaunchPlan(options, *ParseHostfile("a slots=1\nb:22 slots=1", "hf"), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->nodes[0].port, 2222);
  EXPECT_EQ(plan->nodes[1].port, 22);
}

TEST(MakeLaunchPlan, KeepsEnvironmentAndLabels) {
  auto hosts = Hosts({1, 1});
  hosts[1].env = {{"A", "b"}};
  hosts[1].labels = {{"rack", "7"}};
  const auto plan = MakeLaunchPlan(Options({}, {}, {}, "hf"), hosts, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->nodes[0].env.empty());
  EXPECT_EQ(plan->nodes[1].env, hosts[1].env);
  EXPECT_EQ(plan->nodes[1].labels, hosts[1].labels);
}

TEST(CertainRanks, IsZeroForRangeOfNodes) {
  const auto hosts = Hosts({2, 2, 2});
  EXPECT_EQ(CertainRanks(*MakeLaunchPlan(Options({}, {}, {}, "hf"), hosts, {})), 6);
  EXPECT_EQ(CertainRanks(*MakeLaunchPlan(Elastic(1, 3), hosts, {})), 0);
  EXPECT_EQ(CertainRanks(*MakeLaunchPlan(Elastic(3, 3), hosts, {})), 6);
  EXPECT_EQ(
      CertainRanks(*MakeLaunchPlan(Options({}, {}, {}, "hf"), HostsWithSpare({2, 2, 2}, 1), {})),
      4);
}

struct DeviceCase {
  pb::Device requested;
  std::vector<NodeGpus> nodes;
  bool one_machine;
  std::string said;  // begins with "error" if the plan is refused
};

TEST(DecideMpi, ChoosesServerByOptionLibraryAndRanks) {
  using enum MpiChoice;
  struct Case {
    MpiChoice requested;
    std::string no_pmix;
    int ranks;
    pb::MpiService::Server server;
    // Part of the error, when the plan is made or once a rank uses PMIx; empty if there is no
    // error.
    std::string says;
  };
  const std::string missing = "b has no OpenPMIx library";
  const std::vector<Case> cases = {
      {kAuto, "", 4, pb::MpiService::PMIX, ""},
      {kAuto, "", 1, pb::MpiService::NONE, ""},
      {kAuto, missing, 4, pb::MpiService::PMI, missing},
      {kAuto, missing, 1, pb::MpiService::NONE, ""},
      {kPmi, "", 4, pb::MpiService::PMI, ""},
      {kPmi, missing, 1, pb::MpiService::PMI, ""},
      {kPmix, "", 1, pb::MpiService::PMIX, ""},
      {kPmix, missing, 4, pb::MpiService::NONE, "--mpi pmix: " + missing},
      {kNone, "", 4, pb::MpiService::NONE, ""},
      {kNone, missing, 4, pb::MpiService::NONE, ""},
  };
  for (const Case& c : cases) {
    const Result<pb::MpiService> mpi = DecideMpi(c.requested, c.no_pmix, c.ranks);
    const std::string said = mpi.ok() ? mpi->no_pmix() : mpi.error().message;
    const std::string which = "case " + std::to_string(&c - cases.data()) + ": " + said;
    EXPECT_EQ(mpi.ok() ? mpi->server() : pb::MpiService::NONE, c.server) << which;
    EXPECT_EQ(said.empty(), c.says.empty()) << which;
    EXPECT_NE(said.find(c.says), std::string::npos) << which;
    EXPECT_EQ(mpi.ok(), c.requested != kPmix || c.says.empty()) << which;
    EXPECT_EQ(mpi.ok() && mpi->is_required(),
              mpi.ok() && (c.requested == kPmix || c.requested == kPmi))
        << which;
  }
}

TEST(DecideDevice, UsesCudaOnlyIfEverySlotHasGpu) {
  const DeviceCase cases[] = {
      {pb::DEVICE_AUTO, {{"a", 2, 2}, {"b", 2, 8}}, false, "CUDA, as every slot has a GPU"},
      {pb::DEVICE_AUTO, {{"a", 2, 0}, {"b", 2, 0}}, false, "CPU, as no node has an accelerator"},
      {pb::DEVICE_AUTO,
       {{"a", 2, 2}, {"b", 2, 0}},
       false,
       "error--device auto: not every slot has a GPU: b has 0 GPUs for 2 slots; "},
      {pb::DEVICE_AUTO,
       {{"a", 2, 1}, {"b", 4, 3}},
       false,
       "errora has 1 GPU for 2 slots, b has 3 GPUs for 4 slots; "},
      {pb::DEVICE_CUDA, {{"a", 2, 2}}, false, "CUDA, set by --device cuda"},
      {pb::DEVICE_CUDA,
       {{"a", 2, 0}},
       false,
       "error--device cuda: not every slot has a GPU: a has 0 GPUs for 2 slots; "},
      {pb::DEVICE_CPU, {{"a", 2, 8}}, false, "CPU, set by --device cpu"},
      {pb::DEVICE_AUTO, {{"n0", 2, 4}, {"n1", 2, 4}}, true, "CUDA, as every slot has a GPU"},
      {pb::DEVICE_AUTO,
       {{"n0", 2, 2}, {"n1", 2, 2}},
       true,
       "errorthis machine has 2 GPUs for 4 slots; "},
      {pb::DEVICE_AUTO, {{"n0", 2, 0}, {"n1", 2, 0}}, true, "CPU, as no node has an accelerator"},
      {pb::DEVICE_AUTO, {{"a", 2, 8, 7}}, false, "CUDA, as every slot has a GPU"},
      {pb::DEVICE_AUTO,
       {{"a", 2, 4, 7}},
       false,
       "error--device auto: not every slot has a GPU: a has 4 "
       "GPUs, so no GPU 7; "},
      {pb::DEVICE_AUTO, {{"n0", 2, 4, 1}, {"n1", 2, 4, 3}}, true, "CUDA, as every slot has a GPU"},
  };
  for (const DeviceCase& c : cases) {
    SCOPED_TRACE(c.said);
    const auto decision = DecideDevice(c.requested, c.nodes, c.one_machine);
    const bool is_error = c.said.rfind("error", 0) == 0;
    ASSERT_EQ(decision.ok(), !is_error);
    if (is_error) {
      EXPECT_EQ(decision.error().code, ExitCode::kUsage);
      EXPECT_THAT(decision.error().message, HasSubstr(c.said.substr(5)));
      EXPECT_THAT(decision.error().message, HasSubstr("--device cpu"));
    } else {
      EXPECT_EQ(decision->reason, c.said);
      EXPECT_EQ(decision->device, c.said.rfind("CUDA", 0) == 0 ? pb::DEVICE_CUDA : pb::DEVICE_CPU);
    }
  }
}

TEST(DecideDevice, TakesTheKindOfTheNodes) {
  const auto node = [](const char* name, int gpus, pb::Device device) {
    return NodeGpus{name, 2, gpus, -1, device};
  };
  auto decision = DecideDevice(pb::DEVICE_AUTO,
                               {node("a", 2, pb::DEVICE_NPU), node("b", 4, pb::DEVICE_NPU)}, false);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->device, pb::DEVICE_NPU);
  EXPECT_EQ(decision->reason, "NPU, as every slot has an NPU");
  decision = DecideDevice(pb::DEVICE_ROCM, {node("a", 2, pb::DEVICE_ROCM)}, false);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->reason, "ROCm, set by --device rocm");
  decision = DecideDevice(pb::DEVICE_XPU, {node("a", 0, pb::DEVICE_CPU)}, false);
  ASSERT_FALSE(decision.ok());
  EXPECT_THAT(decision.error().message,
              HasSubstr("--device xpu: not every slot has a GPU: a has 0"));
  decision = DecideDevice(pb::DEVICE_AUTO,
                          {node("a", 2, pb::DEVICE_CUDA), node("b", 2, pb::DEVICE_ROCM)}, false);
  ASSERT_FALSE(decision.ok());
  EXPECT_THAT(
      decision.error().message,
      HasSubstr("--device auto: a has NVIDIA GPUs, b has AMD GPUs; choose nodes of one kind"));
  decision = DecideDevice(pb::DEVICE_AUTO, {node("a", 0, pb::DEVICE_CPU)}, false, true);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->reason, "CPU, as no node has an NVIDIA GPU");
}

}  // namespace
}  // namespace dslaunch::launch_plan_test
