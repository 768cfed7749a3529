#include "trainer/weights/weight_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShownBytes = 400;
const std::set<std::string> kPickles = {".bin", ".pt", ".pth"};

[[noreturn]] void RefusePickle(const std::string& path) {
  RefuseInput(path + " is a pickle, which can run code and is never read; save it as safetensors");
}

std::vector<std::string> ShardFiles(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : ReadWeightIndex(folder + "/" + kWeightIndexFile)) {
    files.insert(folder + "/" + file);
  }
  return {files.begin(), files.end()};
}

}  // namespace

std::vector<std::string> WeightFiles(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (kPickles.contains(fs::path(path).extension())) RefusePickle(path);
    return {path};
  }
  if (fs::exists(path + "/" + kWeightsFile, error)) return {path + "/" + kWeightsFile};
  if (fs::exists(path + "/" + kWeightIndexFile, error)) return ShardFiles(path);
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (kPickles.contains(entry.path().extension())) RefusePickle(entry.path());
  }
  if (fs::exists(path + "/" + kManifestFile, error)) {
    RefuseInput(path + " is a checkpoint of several ranks; dslaunch checkpoint export merges it, " +
                "--load_module_only starts from it directly");
  }
  RefuseInput(path + ": holds neither " + kWeightsFile + " nor " + kWeightIndexFile);
}

std::map<std::string, std::string> ReadWeightIndex(const std::string& path) {
  const nlohmann::json index = ReadJsonFile(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    RefuseInput(path + ": has no weight_map, which names the file of each tensor");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      RefuseInput(path + ": weight_map." + SanitizeForTerminal(tensor.substr(0, kMaxShownBytes)) +
                  " is not the name of a file in this folder");
    }
    files.emplace(tensor, file.get<std::string>());
  }
  if (files.empty()) RefuseInput(path + ": its weight_map names no file");
  return files;
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace dslaunch
