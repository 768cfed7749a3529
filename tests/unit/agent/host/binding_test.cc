#include "agent/host/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::binding_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Lists = std::vector<std::vector<int>>;

// Returns a topology in which the first threads of all cores are numbered before all second
// threads, as by Linux.
CpuTopology Machine(int sockets, int nodes_each, int cores_each, int threads) {
  CpuTopology topology;
  const int cores = sockets * nodes_each * cores_each;
  for (int node = 0; node < sockets * nodes_each; ++node) topology.nodes.push_back({node, {}});
  for (int id = 0; id < cores * threads; ++id) {
    const int core = id % cores;
    const int node = core / cores_each;
    topology.cpus.push_back(
        {.id = id, .core = core, .socket = node / nodes_each, .cache = node * cores_each});
    topology.nodes[static_cast<size_t>(node)].cpus.push_back(id);
  }
  return topology;
}

void Forbid(CpuTopology& topology, const std::vector<int>& ids) {
  std::erase_if(topology.cpus, [&](const Cpu& cpu) {
    return std::find(ids.begin(), ids.end(), cpu.id) != ids.end();
  });
}

std::vector<RankBinding> Decide(const CpuTopology& topology, const BindingRequest& request) {
  const auto bindings = DecideBinding(topology, request);
  EXPECT_TRUE(bindings.ok()) << bindings.error().message;
  return bindings.ok() ? *bindings : std::vector<RankBinding>(16);
}

Lists CpusOf(const CpuTopology& topology, const BindingRequest& request) {
  Lists lists;
  for (const RankBinding& binding : Decide(topology, request)) lists.push_back(binding.cpus);
  return lists;
}

std::string Refusal(const CpuTopology& topology, const BindingRequest& request) {
  const auto bindings = DecideBinding(topology, request);
  EXPECT_FALSE(bindings.ok());
  return bindings.ok() ? "" : bindings.error().message;
}

TEST(BindingTest, ReturnsNoBindingsForNone) {
  EXPECT_THAT(Decide(Machine(1, 1, 4, 1), {.ranks = 2}), IsEmpty());
}

// --- As deepspeed --bind_cores_to_rank ---

BindingRequest Cores(int ranks, std::vector<int> cores = {}) {
  return {
      .bind = pb::RankOptions::CORES, .cores = std::move(cores), .ranks = ranks, .gpu_nodes = {}};
}

TEST(BindingTest, DividesPhysicalCoresEvenlyDroppingRemainder) {
  const auto bindings = Decide(Machine(2, 1, 4, 2), Cores(3));
  ASSERT_EQ(bindings.size(), 3u);
  EXPECT_THAT(bindings[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(bindings[1].cpus, ElementsAre(2, 3));
  EXPECT_THAT(bindings[2].cpus, ElementsAre(4, 5)) << "no second threads, and 6, 7 unused";
  EXPECT_EQ(bindings[0].threads, 2);
  EXPECT_THAT(bindings[0].memory_nodes, ElementsAre(0));
  EXPECT_THAT(bindings[1].memory_nodes, ElementsAre(0));
  EXPECT_THAT(bindings[2].memory_nodes, ElementsAre(1));
  EXPECT_FALSE(bindings[0].memory_preferred);
}

TEST(BindingTest, LeavesMemoryFreeForRankAcrossNumaNodes) {
  const auto bindings = Decide(Machine(2, 1, 3, 1), Cores(2, {0, 2, 3, 4}));
  EXPECT_THAT(bindings[0].memory_nodes, ElementsAre(0));
  EXPECT_THAT(bindings[1].memory_nodes, ElementsAre(1));
  EXPECT_THAT(Decide(Machine(2, 1, 3, 1), Cores(1)).front().memory_nodes, IsEmpty());
  EXPECT_THAT(Decide(Machine(1, 1, 4, 1), Cores(1)).front().memory_nodes, IsEmpty())
      << "with one NUMA node there is nothing to choose";
}

TEST(BindingTest, DividesGivenListOfCores) {
  EXPECT_EQ(CpusOf(Machine(1, 1, 4, 2), Cores(2, {1, 3, 4, 5, 7})), (Lists{{1, 3}, {4, 5}}));
}

TEST(BindingTest, DividesOnlyUsableCpus) {
  CpuTopology topology = Machine(1, 1, 4, 2);
  Forbid(topology, {0, 5});  // leaves the second thread of core 0 and the first thread of core 1
  EXPECT_EQ(CpusOf(topology, Cores(4)), (Lists{{1}, {2}, {3}, {4}}));
  EXPECT_THAT(Refusal(topology, Cores(1, {3, 5})),
              HasSubstr("--bind_core_list: there is no CPU 5 for this job; there are 1-4,6-7"));
  EXPECT_THAT(Refusal(topology, Cores(1, {99})), HasSubstr("CPU 99"));
}

TEST(BindingTest, RejectsMoreRanksThanCores) {
  EXPECT_THAT(Refusal(Machine(1, 1, 2, 2), Cores(3)), HasSubstr("3 ranks cannot share 2 cores"));
  EXPECT_THAT(Refusal(Machine(1, 1, 2, 2), Cores(2, {1})), HasSubstr("1 cores (1)"));
}

TEST(BindingTest, PrefersMemoryOnlyNodesIfEachNodeHasOne) {
  CpuTopology topology = Machine(2, 1, 2, 1);
  topology.nodes.push_back({2, {}});
  topology.nodes.push_back({3, {}});
  const auto bindings = Decide(topology, Cores(2));
  EXPECT_THAT(bindings[0].memory_nodes, ElementsAre(2));
  EXPECT_THAT(bindings[1].memory_nodes, ElementsAre(3));
  EXPECT_TRUE(bindings[1].memory_preferred);
  topology.nodes.pop_back();
  EXPECT_THAT(Decide(topology, Cores(2))[1].memory_nodes, ElementsAre(1));
}

TEST(BindingTest, TreatsNodesWithEqualCpusAsOne) {
  CpuTopology topology = Machine(1, 1, 4, 1);
  topology.nodes.push_back({1, topology.nodes.front().cpus});
  EXPECT_THAT(Decide(topology, Cores(2))[1].memory_nodes, ElementsAre(0, 1));
}

// --- As torchrun --numa_binding ---

BindingRequest Numa(pb::RankOptions::Bind bind, int ranks, std::vector<int> gpu_nodes = {}) {
  return {.bind = bind, .cores = {}, .ranks = ranks, .gpu_nodes = std::move(gpu_nodes)};
}

TEST(BindingTest, BindsToTheNumaNodeOfTheGpu) {
  const CpuTopology topology = Machine(2, 1, 2, 2);
  EXPECT_EQ(CpusOf(topology, Numa(pb::RankOptions::NUMA_NODE, 3, {1, 0, 1})),
            (Lists{{2, 3, 6, 7}, {0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(Decide(topology, Numa(pb::RankOptions::NUMA_NODE, 1))[0].threads, 0);
}

TEST(BindingTest, SpreadsRanksOverNodesWithoutGpus) {
  EXPECT_EQ(CpusOf(Machine(2, 1, 2, 1), Numa(pb::RankOptions::NUMA_NODE, 3)),
            (Lists{{0, 1}, {0, 1}, {2, 3}}));
  CpuTopology topology = Machine(2, 1, 2, 1);
  Forbid(topology, {0, 1});
  EXPECT_EQ(CpusOf(topology, Numa(pb::RankOptions::NUMA_NODE, 2)), (Lists{{2, 3}, {2, 3}}));
}

TEST(BindingTest, SocketIncludesAllItsNodes) {
  EXPECT_EQ(CpusOf(Machine(2, 2, 1, 2), Numa(pb::RankOptions::SOCKET, 2, {1, 2})),
            (Lists{{0, 1, 4, 5}, {2, 3, 6, 7}}));
}

TEST(BindingTest, ExclusiveGivesWholeCoresAndMoreToFirstRanks) {
  EXPECT_EQ(CpusOf(Machine(1, 1, 5, 2), Numa(pb::RankOptions::EXCLUSIVE, 2, {0, 0})),
            (Lists{{0, 1, 2, 5, 6, 7}, {3, 4, 8, 9}}));
  EXPECT_EQ(CpusOf(Machine(2, 1, 2, 1), Numa(pb::RankOptions::EXCLUSIVE, 4, {1, 0, 0, 1})),
            (Lists{{2}, {0}, {1}, {3}}));
  EXPECT_THAT(Refusal(Machine(2, 1, 1, 2), Numa(pb::RankOptions::EXCLUSIVE, 3, {1, 1, 0})),
              HasSubstr("2 ranks cannot share the 1 cores of NUMA node 1"));
}

TEST(BindingTest, AssignsCoreComplexesInTurnLargestFirst) {
  CpuTopology topology = Machine(1, 1, 6, 1);
  // The caches are {0,1} and {2,3,4,5}.
  for (Cpu& cpu : topology.cpus) cpu.cache = cpu.id < 2 ? 0 : 2;
  EXPECT_EQ(CpusOf(topology, Numa(pb::RankOptions::CORE_COMPLEX, 3, {0, 0, 0})),
            (Lists{{2, 3, 4, 5}, {0, 1}, {2, 3, 4, 5}}));
}

TEST(BindingTest, RejectsGpuOnNodeWithoutUsableCpu) {
  CpuTopology topology = Machine(2, 1, 1, 1);
  Forbid(topology, {1});
  EXPECT_THAT(Refusal(topology, Numa(pb::RankOptions::NUMA_NODE, 2, {0, 1})),
              HasSubstr("the GPU of local rank 1 is on NUMA node 1"));
}

// --- Topology in /sys ---

class CpuTopologyTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / path).parent_path());
    dir_.Write(path, text + "\n");
  }
  void WriteCpu(int id, const std::string& siblings, int socket, const std::string& cache) {
    const std::string cpu = "sys/devices/system/cpu/cpu" + std::to_string(id) + "/";
    Write(cpu + "topology/thread_siblings_list", siblings);
    Write(cpu + "topology/physical_package_id", std::to_string(socket));
    Write(cpu + "cache/index0/type", "Data");
    Write(cpu + "cache/index0/level", "1");
    Write(cpu + "cache/index0/shared_cpu_list", siblings);
    Write(cpu + "cache/index3/type", "Unified");
    Write(cpu + "cache/index3/level", "3");
    Write(cpu + "cache/index3/shared_cpu_list", cache);
    Write(cpu + "cache/index9/type", "Instruction");
    Write(cpu + "cache/index9/level", "9");
  }
  TempDir dir_;
};

TEST_F(CpuTopologyTest, ReadsTopologyOfSys) {
  WriteCpu(0, "0,2", 0, "0,2");
  WriteCpu(1, "1,3", 1, "1,3");
  WriteCpu(2, "0,2", 0, "0,2");
  WriteCpu(3, "1,3", 1, "1,3");
  Write("sys/devices/system/node/online", "0-1,4");
  Write("sys/devices/system/node/node0/cpulist", "0,2");
  Write("sys/devices/system/node/node1/cpulist", "1,3");
  Write("sys/devices/system/node/node4/cpulist", "");
  const CpuTopology topology = ReadCpuTopology(dir_.path(), {1, 2, 3});
  ASSERT_EQ(topology.cpus.size(), 3u);
  EXPECT_EQ(topology.cpus[1].id, 2);
  EXPECT_EQ(topology.cpus[1].core, 0);
  EXPECT_EQ(topology.cpus[1].cache, 0);
  EXPECT_EQ(topology.cpus[2].core, 1);
  EXPECT_EQ(topology.cpus[2].socket, 1);
  ASSERT_EQ(topology.nodes.size(), 3u);
  EXPECT_THAT(topology.nodes[1].cpus, ElementsAre(1, 3));
  EXPECT_EQ(topology.nodes[2].id, 4);
  EXPECT_THAT(topology.nodes[2].cpus, IsEmpty());
}

TEST_F(CpuTopologyTest, DefaultsToOneCpuPerCoreOnOneNode) {
  const CpuTopology topology = ReadCpuTopology(dir_.path(), {0, 3});
  ASSERT_EQ(topology.cpus.size(), 2u);
  EXPECT_EQ(topology.cpus[1].core, 3);
  ASSERT_EQ(topology.nodes.size(), 1u);
  EXPECT_THAT(topology.nodes[0].cpus, ElementsAre(0, 3));
}

}  // namespace
}  // namespace dslaunch::binding_test
