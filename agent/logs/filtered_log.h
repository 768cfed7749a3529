// The lines of a node's ranks that have one of some texts, in one file: what torchrun makes for
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

// Reads the ranks' files as they grow and appends to ATTEMPT/filtered_stdout.log and
// filtered_stderr.log, each line tagged as on the terminal and with all its bytes. A disk that
// takes nothing costs lines, never the job. All on the loop's thread.
class FilteredLog {
 public:
  FilteredLog(asio::io_context& loop, std::string node, const pb::FilteredLogs& what);

  // A rank writes to FOLDER/stdout.log and FOLDER/stderr.log; FOLDER is in the attempt's.
  void FollowRank(uint32_t rank, uint32_t local_rank, const std::string& folder);

  // The ranks followed so far write no more: what they wrote is copied before this returns.
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
  std::vector<std::string> texts_[2];  // for stdout and stderr
  const TagStyle tags_;
  std::vector<File> files_;  // of this attempt, by LogTail's id
  UniqueFd out_[2];
  std::string pending_;  // what a piece of a file has for out_
  std::optional<LogTail> tail_;
  std::shared_ptr<int> attempt_;  // what is posted for another one comes too late
};

}  // namespace dslaunch
