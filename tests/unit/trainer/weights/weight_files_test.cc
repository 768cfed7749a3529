#include "trainer/weights/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"

namespace dslaunch::weight_files_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Refusal(const std::string& path) {
  try {
    WeightFiles(path);
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
}

TEST(WeightFilesTest, ReturnsFileItself) {
  EXPECT_THAT(WeightFiles("/some/weights"), ElementsAre("/some/weights"));
}

TEST(WeightFilesTest, FindsModelFileOrFilesOfIndex) {
  const TempDir folder;
  folder.Write("pytorch_model.bin", "");
  folder.Write("model.safetensors.index.json",
               R"({"metadata": {}, "weight_map": {"a": "2.safetensors", "b": "1.safetensors",
                   "c": "2.safetensors"}})");
  EXPECT_THAT(WeightFiles(folder.path()),
              ElementsAre(folder / "1.safetensors", folder / "2.safetensors"));
  folder.Write("model.safetensors", "");
  EXPECT_THAT(WeightFiles(folder.path()), ElementsAre(folder / "model.safetensors"));
}

TEST(WeightFilesTest, RefusesPicklesByName) {
  for (const char* name : {"pytorch_model.bin", "model.pt", "model.pth"}) {
    const TempDir folder;
    const std::string file = folder.Write(name, "");
    EXPECT_THAT(Refusal(file), HasSubstr("is a pickle"));
    EXPECT_THAT(Refusal(folder.path()), HasSubstr(std::string(name) + " is a pickle"));
  }
  const TempDir empty;
  EXPECT_THAT(Refusal(empty.path()), HasSubstr("holds neither model.safetensors nor"));
  empty.Write("manifest.json", "");
  EXPECT_THAT(Refusal(empty.path()), HasSubstr("dslaunch checkpoint export"));
}

TEST(WeightFilesTest, RefusesIndexWithFilesOutsideFolder) {
  const TempDir folder;
  const auto refusal = [&](const std::string& text) {
    folder.Write("model.safetensors.index.json", text);
    return Refusal(folder.path());
  };
  for (const char* name : {"\"/etc/passwd\"", "\"../other\"", "\"a/b\"", "\"\"", "\".\"", "7",
                           "\"a\\u0000b\"", "null"}) {
    EXPECT_THAT(refusal("{\"weight_map\": {\"w\": " + std::string(name) + "}}"),
                HasSubstr("weight_map.w is not the name of a file in this folder"));
  }
  EXPECT_THAT(refusal("{\"weight_map\": {}}"), HasSubstr("names no file"));
  EXPECT_THAT(refusal("{\"weight_map\": []}"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal("[]"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_NE(refusal(""), "");
  const std::string index = folder.Write("model.safetensors.index.json", "");
  std::filesystem::resize_file(index, 1u << 30);
  EXPECT_THAT(Refusal(folder.path()), HasSubstr("has 1073741824 bytes"));
}

}  // namespace
}  // namespace dslaunch::weight_files_test
