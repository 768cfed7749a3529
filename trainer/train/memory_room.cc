#include "trainer/train/memory_room.h"

#include <unistd.h>

#include <map>
#include <string>

#include "base/count.h"
#include "base/os/node_memory.h"
#include "base/text/sanitize.h"
#include "trainer/base/format.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/numbers.h"

namespace dslaunch {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string Bytes(double bytes) { return BytesText(static_cast<int64_t>(bytes)); }

}  // namespace

std::optional<NodeRoom> NodeWithoutRoom(const std::vector<RankRoom>& ranks) {
  std::map<int, NodeRoom> nodes;
  for (const RankRoom& rank : ranks) {
    NodeRoom& node = nodes[rank.node];
    node.node = rank.node;
    ++node.ranks;
    node.needed += rank.needed;
    node.available = rank.available;
  }
  for (const auto& [number, node] : nodes) {
    if (node.available > 0 && node.needed > node.available) return node;
  }
  return std::nullopt;
}

bool HasRoomForCopies(const TrainRun& run, const WorkerEnv& env) {
  // On a GPU, the state is first copied into pinned memory, which is a third copy.
  const int copies = run.group.device().is_cpu() ? 2 : 3;
  // Later attempts find the copies of the first attempt in the memory of their nodes, so only the
  // first attempt needs room.
  const double needed =
      env.attempt > 1
          ? 0
          : copies * static_cast<double>(run.memory->BytesOf(run.training_model.core()));
  // Nodes that are processes of one machine share its memory, so they count as one machine.
  const int machine = env.nodes_share_machine() ? 0 : env.node_rank;
  std::vector<RankRoom> ranks;
  bool all_have_memory = true;
  for (const std::vector<double>& rank :
       GatherNumbers(run.group, {static_cast<double>(machine), needed,
                                 static_cast<double>(ReadNodeMemory().available_bytes),
                                 run.memory->available() ? 1.0 : 0.0})) {
    ranks.push_back({static_cast<int>(rank[0]), rank[1], rank[2]});
    all_have_memory = all_have_memory && rank[3] != 0;
  }
  if (!all_have_memory) {
    run.log.Warning(
        "no copies of the state are made in memory (run.memory_checkpoint): the launcher gave the "
        "ranks no memory that outlives them; start the run with dslaunch train");
    return false;
  }
  const std::optional<NodeRoom> node = NodeWithoutRoom(ranks);
  if (!node) return true;
  const std::vector<std::string> hosts =
      GatherTexts(run.group, machine == node->node ? HostName() : "");
  std::string host;
  for (const std::string& name : hosts) host = host.empty() ? name : host;
  run.log.Warning(Format(
      "no copies of the state are made in memory (run.memory_checkpoint): node %d (%s) has %s of "
      "memory available, and %d copies for each of its %s take %s",
      node->node, SanitizeForTerminal(host).c_str(), Bytes(node->available).c_str(), copies,
      Count(static_cast<size_t>(node->ranks), "rank").c_str(), Bytes(node->needed).c_str()));
  return false;
}

}  // namespace dslaunch
