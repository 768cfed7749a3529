#include "trainer/data/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::image_folder_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ImageFolderTest : public testing::Test {
 protected:
  void Add(const std::string& file) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / file).parent_path());
    folder_.Write(file, "");
  }

  // Returns each file's path relative to the folder, and its label.
  std::vector<std::string> Files(const ImageFolder& images) {
    std::vector<std::string> files;
    for (const ImageFolder::Image& image : images.images) {
      files.push_back(image.file.substr(folder_.path().size() + 1) + " " +
                      std::to_string(image.label));
    }
    return files;
  }

  void Refused(const testing::Matcher<std::string>& message,
               const std::vector<std::string>& known = {}) {
    ExpectRefused([&] { ListImageFolder(folder_.path(), known); }, ExitCode::kBadInput, message);
  }

  TempDir folder_;
};

TEST_F(ImageFolderTest, NumbersClassesAndFilesInTorchvisionsOrder) {
  // The expected order is the order of ImageFolder in torchvision 0.26.0.
  for (const char* file : {"cat/b.PNG", "cat/a.jpeg", "cat/sub/1.jpg", "cat/sub-/1.jpg",
                           "cat/notes.txt", "Zebra/1.png", "dog/10.jpg", "dog/9.jpg",
                           "\xc3\xa4"
                           "pfel/1.png",
                           "beside.png"}) {
    Add(file);
  }
  const ImageFolder images = ListImageFolder(folder_.path());
  EXPECT_THAT(images.classes, ElementsAre("Zebra", "cat", "dog",
                                          "\xc3\xa4"
                                          "pfel"));
  EXPECT_THAT(Files(images),
              ElementsAre("Zebra/1.png 0", "cat/a.jpeg 1", "cat/b.PNG 1", "cat/sub/1.jpg 1",
                          "cat/sub-/1.jpg 1", "dog/10.jpg 2", "dog/9.jpg 2",
                          "\xc3\xa4"
                          "pfel/1.png 3"));
}

TEST_F(ImageFolderTest, KeepsTheLabelsOfKnownClasses) {
  Add("cat/1.png");
  Add("dog/1.png");
  EXPECT_THAT(Files(ListImageFolder(folder_.path(), {"bird", "cat", "dog"})),
              ElementsAre("cat/1.png 1", "dog/1.png 2"));
  Refused(AllOf(HasSubstr("/cat: "), HasSubstr("the training data does not have")), {"dog"});
}

TEST_F(ImageFolderTest, RefusesFilesThatItWouldSkip) {
  Refused(HasSubstr("has no folders"));
  Add("cat/1.webp");
  Refused(AllOf(HasSubstr("/cat/1.webp: "), HasSubstr("PNG and JPEG only")));
  std::filesystem::remove(folder_ / "cat/1.webp");
  Refused(AllOf(HasSubstr("/cat: "), HasSubstr("has no PNG or JPEG file")));
  Add("cat/1.png");
  std::filesystem::create_directory_symlink("..", folder_ / "cat/loop");
  Refused(HasSubstr("does a link lead back?"));
  ExpectRefused([&] { ListImageFolder(folder_ / "cat/1.png"); }, ExitCode::kBadInput,
                HasSubstr("is a file, but data.type image_folder reads a folder"));
  ExpectRefused([&] { ListImageFolder(folder_ / "no"); }, ExitCode::kBadInput,
                HasSubstr("does not exist; set data.path"));
}

}  // namespace
}  // namespace dslaunch::image_folder_test
