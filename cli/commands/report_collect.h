// The ranks' files for a report, from the nodes of a job.
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

// Puts one node's parts together. The node is not trusted: what it sends beyond what it was asked
// for is not kept. Pure.
class RankFileParts {
 public:
  // `node` is its name; `max_bytes` is what it was asked for.
  RankFileParts(std::string node, uint64_t max_bytes)
      : node_(std::move(node)), bytes_left_(max_bytes) {}

  // False once it has sent too much: the rest is not read.
  bool Take(const pb::RankFilePart& part);

  // Whether the node has sent everything.
  bool complete() const { return complete_; }

  struct Files {
    std::vector<RankFiles> ranks;       // by attempt and rank
    std::vector<std::string> troubles;  // sentences: what is not there
  };
  // All that the node has sent. Once.
  Files Finish();

 private:
  void FinishFile();

  const std::string node_;
  uint64_t bytes_left_;
  bool complete_ = false;
  bool too_much_ = false;
  uint32_t files_left_out_ = 0;
  size_t thinned_ = 0;  // files of metrics
  size_t too_large_ = 0;
  std::map<std::pair<uint64_t, uint32_t>, RankFiles> ranks_;  // by attempt and rank
  pb::RankFilePart open_;  // the file that `text_` is of; without data
  bool is_open_ = false;
  std::string text_;
};

// From all nodes at once, within `timeout`. A node that does not answer is a trouble.
struct CollectedFiles {
  RankFileParts::Files files;
  bool all_answered = true;
};
// Afterwards the process ends by _exit: threads may still wait for nodes.
CollectedFiles CollectRankFiles(const JobRecord& record, const AgentBinary& agent,
                                milliseconds timeout);

}  // namespace dslaunch
