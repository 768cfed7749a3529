// The ranks of a job as a grid of pipeline stages and replicas. Pure.
#pragma once

#include <vector>

#include "trainer/config/pipeline_config.h"

namespace dslaunch {

class Topology {
 public:
  // Precondition: stages divides world_size.
  Topology(int world_size, int stages, RankOrder order);

  int stages() const { return stages_; }
  int replicas() const { return replicas_; }  // data parallel: ranks of each stage
  int StageOf(int rank) const;
  int ReplicaOf(int rank) const;
  int RankOf(int stage, int replica) const;
  std::vector<int> RanksOfStage(int stage) const;      // by replica
  std::vector<int> RanksOfReplica(int replica) const;  // by stage

 private:
  int stages_, replicas_;
  RankOrder order_;
};

}  // namespace dslaunch
