// Parses, filters and plans a hostfile of N lines. Prints one JSON object with the seconds that
// each takes, as the best of some rounds.
//
//   dslaunch-bench-hostfile-core NODES text|yaml
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/plan/launch_plan.h"

namespace dslaunch {
namespace {

constexpr int kRounds = 5;

std::string Name(int node) { return "node" + std::to_string(node) + ".cluster.example"; }

std::string Hostfile(int nodes, bool yaml) {
  std::string text = yaml ? "hosts:\n" : "# NAME slots=N\n";
  for (int i = 0; i < nodes; ++i) {
    text += yaml ? "- name: " + Name(i) + "\n  slots: 8\n  labels: {rack: r" +
                       std::to_string(i / 32) + "}\n"
                 : "alice@" + Name(i) + ":2222 slots=8\n";
  }
  return text;
}

// Returns a filter that selects every other node, and only some slots of half of these nodes.
std::string Include(int nodes) {
  std::string filter;
  for (int i = 0; i < nodes; i += 2)
    filter += (i == 0 ? "" : "@") + Name(i) + (i % 4 == 0 ? ":0,1,2,3" : "");
  return filter;
}

template <class T>
T OrDie(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

int Main(int nodes, bool yaml) {
  const std::string text = Hostfile(nodes, yaml);
  LaunchOptions all, filtered;
  all.hostfile = filtered.hostfile = "hf";
  filtered.include = Include(nodes);
  double parse = 1e9, plan_all = 1e9, plan_filtered = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Host> hosts = OrDie(ParseHostfile(text, "hf"));
    const auto parsed = std::chrono::steady_clock::now();
    const LaunchPlan whole = OrDie(MakeLaunchPlan(all, hosts, {}));
    const auto planned = std::chrono::steady_clock::now();
    const LaunchPlan part = OrDie(MakeLaunchPlan(filtered, hosts, {}));
    const auto end = std::chrono::steady_clock::now();
    if (whole.nodes.size() != hosts.size() || part.nodes.size() != (hosts.size() + 1) / 2) return 1;
    parse = std::min(parse, Seconds(parsed - begin));
    plan_all = std::min(plan_all, Seconds(planned - parsed));
    plan_filtered = std::min(plan_filtered, Seconds(end - planned));
  }
  std::printf(
      "{\"nodes\": %d, \"bytes\": %zu, \"parse_s\": %.6f, \"plan_s\": %.6f, "
      "\"filter_and_plan_s\": %.6f}\n",
      nodes, text.size(), parse, plan_all, plan_filtered);
  return 0;
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const std::string form = argc == 3 ? argv[2] : "";
  const int nodes = argc == 3 ? std::atoi(argv[1]) : 0;
  if (nodes < 1 || (form != "text" && form != "yaml")) {
    std::fprintf(stderr, "usage: dslaunch-bench-hostfile-core NODES text|yaml\n");
    return 64;
  }
  return dslaunch::Main(nodes, form == "yaml");
}
