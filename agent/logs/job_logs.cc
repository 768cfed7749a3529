#include "agent/logs/job_logs.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>

namespace dslaunch {
namespace {

// Returns the number after the prefix in a name such as "attempt_3" or "rank_12"; nullopt if the
// name does not have this form.
template <class T>
std::optional<T> NumberBehind(std::string_view prefix, const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  T number = 0;
  const char* const begin = name.data() + prefix.size();
  const char* const end = name.data() + name.size();
  const auto [rest, status] = std::from_chars(begin, end, number);
  if (status != std::errc() || rest != end) return std::nullopt;
  return number;
}

// Returns the paths of a folder's entries; empty if the folder cannot be read.
std::vector<std::filesystem::path> Entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  return entries;
}

}  // namespace

std::vector<RankFolder> ListRankFolders(const std::string& folder) {
  std::vector<RankFolder> ranks;
  for (const auto& attempt_path : Entries(folder)) {
    const auto attempt = NumberBehind<uint64_t>("attempt_", attempt_path.filename());
    if (!attempt) continue;
    for (const auto& rank_path : Entries(attempt_path)) {
      const auto rank = NumberBehind<uint32_t>("rank_", rank_path.filename());
      if (rank) ranks.push_back({*attempt, *rank, rank_path});
    }
  }
  std::ranges::sort(ranks, {},
                    [](const RankFolder& rank) { return std::tie(rank.attempt, rank.rank); });
  return ranks;
}

std::vector<JobLog> ListJobLogs(const std::string& folder) {
  std::vector<JobLog> logs;
  for (const RankFolder& rank : ListRankFolders(folder)) {
    for (const bool is_stderr : {false, true})
      logs.push_back({rank.attempt, rank.rank, is_stderr,
                      rank.path + (is_stderr ? "/stderr.log" : "/stdout.log")});
  }
  return logs;
}

uint64_t OffsetAt(const JobLog& log, int64_t unix_ms) {
  const std::filesystem::path attempt = std::filesystem::path(log.path).parent_path().parent_path();
  std::ifstream marks(attempt / "marks");
  uint64_t offset = 0;
  for (std::string line; std::getline(marks, line);) {
    std::istringstream words(line);
    int64_t time_ms = 0;
    uint32_t rank = 0;
    uint64_t stdout_bytes = 0, stderr_bytes = 0;
    const bool is_signed = line.find('-') != std::string::npos;
    if (is_signed || !(words >> time_ms >> rank >> stdout_bytes >> stderr_bytes))
      continue;  // a truncated line is skipped
    if (time_ms > unix_ms) break;
    if (rank == log.rank) offset = log.is_stderr ? stderr_bytes : stdout_bytes;
  }
  return offset;
}

}  // namespace dslaunch
