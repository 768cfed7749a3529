// Tests the cost of a plan, counted in allocations: twice as many nodes may cost at most about
// twice as much.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "cli/plan/launch_plan.h"

namespace {

size_t g_allocations = 0;
size_t g_bytes = 0;

void* Counted(size_t size) {
  ++g_allocations;
  g_bytes += size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return Counted(size); }
void* operator new[](size_t size) { return Counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace dslaunch::plan_cost_test {
namespace {

struct Cost {
  double allocations = 0;
  double bytes = 0;
};

std::string ManyHosts(int count, bool yaml) {
  std::string text = yaml ? "hosts:\n" : "";
  for (int i = 0; i < count; ++i) {
    const std::string name = "node" + std::to_string(100'000 + i) + ".cluster.example";
    text += yaml ? "- {name: " + name + ", slots: 8, env: {NCCL_SOCKET_IFNAME: eth1}}\n"
                 : name + " slots=8\n";
  }
  return text;
}

// Returns a filter of all nodes except every third node. Of every fourth node it selects the slots
// 0, 2 and 5.
std::string ManyNodes(int count) {
  std::string filter;
  for (int i = 0; i < count; ++i) {
    if (i % 3 == 0) continue;
    filter +=
        (filter.empty() ? "node" : "@node") + std::to_string(100'000 + i) + ".cluster.example";
    if (i % 4 == 0) filter += ":0,2,5";
  }
  return filter;
}

Cost CostOf(int nodes, bool yaml) {
  const std::string text = ManyHosts(nodes, yaml);
  LaunchOptions options;
  options.hostfile = "hf";
  options.include = ManyNodes(nodes);
  g_allocations = g_bytes = 0;
  const auto hosts = ParseHostfile(text, "hf");
  EXPECT_TRUE(hosts.ok());
  const auto plan = MakeLaunchPlan(options, *hosts, {});
  EXPECT_TRUE(plan.ok());
  EXPECT_EQ(plan->nodes.size(), static_cast<size_t>(nodes - (nodes + 2) / 3));
  return {static_cast<double>(g_allocations), static_cast<double>(g_bytes)};
}

TEST(PlanCostTest, GrowsLinearlyWithNodes) {
  for (const bool yaml : {false, true}) {
    const Cost one = CostOf(5'000, yaml);
    const Cost two = CostOf(10'000, yaml);
    const Cost four = CostOf(20'000, yaml);
    EXPECT_LT(two.allocations, 2.2 * one.allocations);
    EXPECT_LT(four.allocations, 2.2 * two.allocations);
    EXPECT_LT(two.bytes, 2.5 * one.bytes);  // vectors and tables double their size when they grow
    EXPECT_LT(four.bytes, 2.5 * two.bytes);
    EXPECT_LT(two.allocations, 10'000 * (yaml ? 120 : 20)) << "a handful for each node";
  }
}

}  // namespace
}  // namespace dslaunch::plan_cost_test
