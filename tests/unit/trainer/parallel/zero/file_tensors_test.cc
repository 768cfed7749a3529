#include "trainer/parallel/zero/file_tensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::file_tensors_test {
namespace {

using testing::HasSubstr;

class FileTensorsTest : public testing::Test {
 protected:
  std::string folder_ = testing::TempDir() + "file_tensors";

  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
};

TEST_F(FileTensorsTest, LeavesNoNamesInFolder) {
  at::Tensor tensor;
  {
    const FileTensors files(folder_);
    tensor = files.Zeros({3, 5000}, at::kFloat);
  }
  EXPECT_EQ(tensor.sum().item<float>(), 0);
  tensor.add_(at::arange(5000));
  EXPECT_TRUE(at::equal(tensor[2], at::arange(5000).to(at::kFloat)));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(FileTensors(folder_).Zeros({0}, at::kHalf).numel(), 0);
}

TEST_F(FileTensorsTest, ThrowsOnFullDisk) {
  const FileTensors files(folder_);
  ExpectRefused([&] { (void)files.Zeros({int64_t{1} << 55}, at::kFloat); }, ExitCode::kIo,
                HasSubstr("nvme_path " + folder_ + ": 131072.0 TiB more are needed"));
}

TEST_F(FileTensorsTest, ReportsMissingFolder) {
  ExpectRefused([&] { const FileTensors files(folder_ + "/none"); }, ExitCode::kBadInput,
                HasSubstr("takes no files: No such file or directory"));
}

}  // namespace
}  // namespace dslaunch::file_tensors_test
