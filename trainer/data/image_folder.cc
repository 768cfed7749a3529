#include "trainer/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "trainer/data/data_file.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 32;  // maximum depth, because links may form cycles
const std::set<std::string> kRead = {".jpg", ".jpeg", ".png"};
// Extensions that torchvision supports but dslaunch does not, so files with them are errors.
const std::set<std::string> kNotRead = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

std::string LowerExtension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

template <class Visit>
void ForEachEntry(const std::string& folder, Visit visit) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    visit(*entry);
  }
  if (error) {
    throw TrainError(ExitCode::kIo, folder + ": cannot be listed: " + error.message());
  }
}

using Found = std::vector<std::pair<std::string, std::string>>;  // folder and name of each file

void Collect(const std::string& folder, int depth, Found& found) {
  if (depth > kMaxDepth) {
    RefuseDataFile(folder, "is " + std::to_string(kMaxDepth) +
                               " folders below its class; does a link lead back?");
  }
  ForEachEntry(folder, [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    const std::string path = entry.path().string();
    if (entry.is_directory(ignored)) return Collect(path, depth + 1, found);
    const std::string extension = LowerExtension(entry.path());
    if (kNotRead.contains(extension)) {
      RefuseDataFile(path,
                     "is an image, but data.type image_folder reads PNG and JPEG only; "
                     "convert or remove it");
    }
    if (kRead.contains(extension) && entry.is_regular_file(ignored)) {
      found.emplace_back(folder, entry.path().filename().string());
    }
  });
}

}  // namespace

ImageFolder ListImageFolder(const std::string& folder, const std::vector<std::string>& known) {
  RefuseFileForFolder(folder, "image_folder");
  if (!FileExists(folder)) RefuseDataFile(folder, "does not exist; set data.path");
  std::vector<std::string> names;
  ForEachEntry(folder, [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
  });
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    RefuseDataFile(folder,
                   "has no folders; data.type image_folder takes a folder with one folder of PNG "
                   "or JPEG files for each class");
  }
  ImageFolder images;
  images.classes = known.empty() ? names : known;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(images.classes, name);
    const std::string path = folder + "/" + name;
    if (at == images.classes.end()) {
      RefuseDataFile(path, "is the folder of a class that the training data does not have");
    }
    Found found;
    Collect(path, 0, found);
    if (found.empty()) {
      RefuseDataFile(path, "has no PNG or JPEG file, but each folder is a class; remove it");
    }
    std::sort(found.begin(), found.end());
    for (const auto& [within, file] : found) {
      images.images.push_back({within + "/" + file, at - images.classes.begin()});
    }
  }
  return images;
}

}  // namespace dslaunch
