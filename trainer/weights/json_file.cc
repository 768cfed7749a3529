#include "trainer/weights/json_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/base/train_error.h"
#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

constexpr uintmax_t kMaxBytes = 16u << 20;  // an index of some 100,000 tensors

}  // namespace

nlohmann::json ReadJsonFile(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxBytes) {
    throw TrainError(ExitCode::kBadInput, path + ": has " + std::to_string(bytes) +
                                              " bytes; at most " + std::to_string(kMaxBytes) +
                                              " are read");
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (error || !stream || (bytes > 0 && !(text << stream.rdbuf()))) {
    throw TrainError(ExitCode::kBadInput,
                     path + ": cannot be read" + (error ? ": " + error.message() : ""));
  }
  return ParseJson(text.str(), path);
}

}  // namespace dslaunch
