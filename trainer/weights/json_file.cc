#include "trainer/weights/json_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"

namespace dslaunch {

nlohmann::json ReadJsonFile(const std::string& path, uintmax_t max_bytes) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > max_bytes) {
    throw TrainError(ExitCode::kBadInput, path + ": has " + std::to_string(bytes) +
                                              " bytes; at most " + std::to_string(max_bytes) +
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
