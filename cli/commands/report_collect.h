// Collects the files of ranks for a report from the nodes of a job.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/report/report_data.h"
#include "cli/session/job_record.h"
#include "cli/transport/agent_binary.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Assembles the files of a node from its messages. The node is not trusted, so data beyond the
// requested amount is dropped. Has no side effects.
class RankFileParts {
 public:
  // Begins with no files. `node` is the node's name; `max_bytes` is the requested limit of data.
  RankFileParts(std::string node, uint64_t max_bytes)
      : node_(std::move(node)), bytes_left_(max_bytes) {}

  // Adds a message. Returns false if the node has exceeded the limit; the caller must then stop
  // reading.
  bool Add(const pb::RankFilePart& part);

  // Returns whether the node has sent all files.
  bool complete() const { return complete_; }

  struct Files {
    std::vector<RankFiles> ranks;       // files of each rank, sorted by attempt and rank
    std::vector<std::string> troubles;  // sentences about missing data
  };
  // Returns all files of the node. Call it once.
  Files Finish();

 private:
  void FinishFile();

  const std::string node_;
  uint64_t bytes_left_;
  bool complete_ = false;
  bool too_much_ = false;
  uint32_t files_left_out_ = 0;
  size_t thinned_ = 0;  // number of metrics files that were thinned
  size_t too_large_ = 0;
  // Files of each rank, indexed by attempt and rank.
  std::map<std::pair<uint64_t, uint32_t>, RankFiles> ranks_;
  pb::RankFilePart open_;  // header of the file whose content is in `text_`; has no data
  bool is_open_ = false;
  std::string text_;
};

// The files of all nodes, collected within a time limit. `troubles` lists the nodes that did not
// answer.
struct CollectedFiles {
  RankFileParts::Files files;
  bool all_answered = true;
};
// Collects the files from all nodes at once. The process must then end by _exit, because threads
// may still wait for nodes.
CollectedFiles CollectRankFiles(const JobRecord& record, const AgentBinary& agent,
                                milliseconds timeout);

}  // namespace dslaunch
