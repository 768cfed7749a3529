// Lists folders of PNG and JPEG files, one folder for each class, as torchvision's ImageFolder
// does.
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
  std::vector<std::string> classes;  // names of the classes, indexed by label
  // The images, sorted by class; within a class, in the order of torchvision's ImageFolder. Each
  // class has at least one image.
  std::vector<Image> images;
};

// Lists FOLDER/CLASS/**/*.{png,jpg,jpeg} without opening files. Classes are numbered in the order
// of their names' bytes. Throws for images in other formats, and ignores other files. If `known` is
// not empty, its names are the classes, and folders with other names are errors. Throws TrainError
// kBadInput, naming the folder or file, or kIo if a folder cannot be listed.
ImageFolder ListImageFolder(const std::string& folder, const std::vector<std::string>& known = {});

}  // namespace dslaunch
