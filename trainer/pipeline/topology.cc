#include "trainer/pipeline/topology.h"

namespace dslaunch {

Topology::Topology(int world_size, int stages, RankOrder order)
    : stages_(stages), replicas_(world_size / stages), order_(order) {}

int Topology::StageOf(int rank) const {
  return order_ == RankOrder::kPipeData ? rank / replicas_ : rank % stages_;
}

int Topology::ReplicaOf(int rank) const {
  return order_ == RankOrder::kPipeData ? rank % replicas_ : rank / stages_;
}

int Topology::RankOf(int stage, int replica) const {
  return order_ == RankOrder::kPipeData ? stage * replicas_ + replica : replica * stages_ + stage;
}

std::vector<int> Topology::RanksOfStage(int stage) const {
  std::vector<int> ranks;
  for (int replica = 0; replica < replicas_; ++replica) ranks.push_back(RankOf(stage, replica));
  return ranks;
}

std::vector<int> Topology::RanksOfReplica(int replica) const {
  std::vector<int> ranks;
  for (int stage = 0; stage < stages_; ++stage) ranks.push_back(RankOf(stage, replica));
  return ranks;
}

}  // namespace dslaunch
