// Makes jobs in the form that the MPI servers of the nodes accept (agent/pmix).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/pmix.pb.h"

namespace dslaunch {

// Returns a job whose nodes are node0, node1 and so on. `ranks` is the number of ranks on each
// node, and `node_rank` the index of the node that the job is for.
inline pb::PmixJob PmixJobOf(const std::vector<uint32_t>& ranks, uint32_t node_rank) {
  pb::PmixJob job;
  job.set_nspace("job.1");
  job.set_folder("/tmp/x");
  job.set_node_rank(node_rank);
  uint32_t next = 0;
  for (const uint32_t count : ranks) {
    pb::PmixNode& node = *job.add_nodes();
    node.set_name("node" + std::to_string(job.nodes_size() - 1));
    node.set_first_rank(next);
    node.set_ranks(count);
    next += count;
  }
  return job;
}

}  // namespace dslaunch
