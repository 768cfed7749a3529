// Copies the lines of a node's ranks that contain given texts to one file, as torchrun does with
// --duplicate_stdout_filters.
#pragma once

#include <asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/logs/log_tail.h"
#include "agent/logs/rank_selection.h"
#include "base/unique_fd.h"
#include "proto/agent.pb.h"
#include "proto/contract/line_assembler.h"
#include "proto/contract/line_tag.h"

namespace dslaunch {

// Reads the ranks' log files as they grow, and appends lines to ATTEMPT/filtered_stdout.log and
// filtered_stderr.log. Each line is tagged as on the terminal and otherwise unchanged. A failed
// write loses lines but does not affect the job. All calls are made on the loop's thread.
class FilteredLog {
 public:
  FilteredLog(asio::io_context& loop, std::string node, const pb::FilteredLogs& what);

  // Follows FOLDER/stdout.log and FOLDER/stderr.log of a rank. FOLDER must be in the attempt's
  // folder.
  void FollowRank(uint32_t rank, uint32_t local_rank, const std::string& folder);

  // Copies the rest of the output of all followed ranks before it returns. Precondition: these
  // ranks write no more.
  void EndAttempt();

 private:
  struct File {
    bool is_stderr = false;
    std::string tag;
    LineAssembler lines;
  };

  void OnReadable();
  void Copy(const LogTail::Chunk& chunk);
  LineAssembler::Sink SinkFor(const File& file);
  void Write(bool is_stderr);

  asio::io_context& loop_;
  const std::string node_;
  const RankSelection ranks_;
  std::vector<std::string> texts_[2];  // texts to search for, in stdout and in stderr
  const TagStyle tags_;
  std::vector<File> files_;  // files of the current attempt, indexed by LogTail's id
  UniqueFd out_[2];
  std::string pending_;  // lines of one chunk to append to out_
  std::optional<LogTail> tail_;
  // Replaced for each attempt, so that callbacks posted for an earlier attempt do nothing.
  std::shared_ptr<int> attempt_;
};

}  // namespace dslaunch
