#include "trainer/foreign/folder_names.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxNames = 1'000'000;

}  // namespace

std::vector<std::string> FolderNames(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
    if (names.size() > kMaxNames) RefuseInput(folder + ": it has more than a million entries");
  }
  if (error) throw TrainError(ExitCode::kIo, folder + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace dslaunch
