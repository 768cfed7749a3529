#include "trainer/base/rank_files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "proto/contract/rank_files.h"
#include "trainer/base/log.h"

namespace dslaunch {

std::string RankDir() {
  const char* folder = std::getenv(kRankDirVariable);
  return folder == nullptr ? "" : folder;
}

std::string NodeDir() { return std::filesystem::path(RankDir()).parent_path().parent_path(); }

void WriteRankFile(const std::string& name, const std::string& text) {
  const std::string file = RankDir() + "/" + name;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  errno = 0;
  stream << text << "\n";
  stream.close();
  if (stream) return;
  PrintLine("the job's report will not contain " + file +
            ": cannot write it: " + std::strerror(errno));
}

}  // namespace dslaunch
