#include "cli/plan/key_origins.h"

namespace dslaunch {
namespace {

bool IsBelow(std::string_view path, std::string_view key) {
  return key.empty() || (path.size() > key.size() && path.starts_with(key) &&
                         (path[key.size()] == '.' || path[key.size()] == '['));
}

}  // namespace

void KeyOrigins::Forget(const std::string& key) {
  std::erase_if(origins_,
                [&](const auto& item) { return item.first == key || IsBelow(item.first, key); });
}

void KeyOrigins::AddFile(const std::string& root, const std::string& file,
                         const KeyPlaces& places) {
  Forget(root);
  origins_[root] = {file, ExitCode::kBadInput};
  for (const auto& [path, place] : places) {
    origins_[root.empty() ? path : root + "." + path] = {file + ":" + place, ExitCode::kBadInput};
  }
}

void KeyOrigins::AddOption(const std::string& key, const std::string& option) {
  Forget(key);
  origins_[key] = {option, ExitCode::kUsage};
}

KeyOrigin KeyOrigins::Of(std::string_view key) const {
  while (true) {
    const auto found = origins_.find(std::string(key));
    if (found != origins_.end()) return found->second;
    if (key.empty()) return {};
    const size_t end = key.find_last_of(".[");
    key = key.substr(0, end == std::string_view::npos ? 0 : end);
  }
}

}  // namespace dslaunch
