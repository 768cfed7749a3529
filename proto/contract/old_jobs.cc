#include "proto/contract/old_jobs.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kKeptS = std::time_t{kJobsKeptDays} * 86'400;

bool IsOld(const fs::path& path, std::time_t now) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_mtim.tv_sec < now - kKeptS;
}

bool IsOldTree(const fs::path& folder, std::time_t now) {
  if (!IsOld(folder, now)) return false;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (!IsOld(at->path(), now)) return false;
  }
  return !error;
}

}  // namespace

bool IsOldJob(std::string_view name, std::time_t now) {
  constexpr std::string_view kForm = "00000000-000000-";
  if (name.size() <= kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool is_digit = name[i] >= '0' && name[i] <= '9';
    if (is_digit != (kForm[i] == '0') || (!is_digit && name[i] != kForm[i])) return false;
  }
  const std::time_t limit = now - kKeptS;
  std::tm utc{};
  char text[32];
  if (::gmtime_r(&limit, &utc) == nullptr ||
      std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &utc) != kForm.size())
    return false;
  return name.substr(0, kForm.size()) < text;
}

size_t RemoveOldJobs(const std::string& jobs_folder, std::time_t now, size_t most,
                     const std::function<bool(const std::string& job_id)>& may_go) {
  std::vector<std::string> old;
  std::error_code error;
  for (fs::directory_iterator at(jobs_folder, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    if (IsOldJob(name, now)) old.push_back(std::move(name));
  }
  std::ranges::sort(old);
  size_t removed = 0;
  for (const std::string& name : old) {
    if (removed == most) break;
    const fs::path folder = fs::path(jobs_folder) / name;
    if (!IsOldTree(folder, now) || !may_go(name)) continue;
    fs::remove_all(folder, error);
    if (!error) ++removed;
  }
  return removed;
}

}  // namespace dslaunch
