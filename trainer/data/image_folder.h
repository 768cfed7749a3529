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
  std::vector<std::string> classes;  // name of each label's class
  std::vector<Image> images;  // images of class 0 first, in ImageFolder's order; each class has one
};

// Lists FOLDER/CLASS/**/*.{png,jpg,jpeg} without opening files. Classes are numbered in the order
// of their names' bytes. Images in other formats are errors; other files are ignored. If `known` is
// not empty, it has the classes, and folders with other names are errors. Throws TrainError
// kBadInput, naming the folder or file, or kIo.
ImageFolder ListImageFolder(const std::string& folder, const std::vector<std::string>& known = {});

}  // namespace dslaunch
