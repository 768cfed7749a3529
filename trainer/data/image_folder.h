// Folders of PNG and JPEG files, one for each class, as torchvision's ImageFolder reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

struct ImageFolder {
  struct Image {
    std::string file;
    int64_t label = 0;
  };
  std::vector<std::string> classes;  // by label
  std::vector<Image> images;         // by class, at least one of each; in ImageFolder's order
};

// Lists FOLDER/CLASS/**/*.{png,jpg,jpeg}. Classes are numbered in the order of their names' bytes;
// other files are passed over, but for images in formats that are not read. No file is opened.
// Where `known` has names, they are the classes, and a folder of another name is refused. Throws
// TrainError kBadInput, naming the folder or file, or kIo.
ImageFolder ListImageFolder(const std::string& folder, const std::vector<std::string>& known = {});

}  // namespace dslaunch
