#include "dslaunch/tensor_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::tensor_file_test {
namespace {

using testing::HasSubstr;

TEST(TensorFileTest, ReadsWrittenTensorsOrderedByName) {
  const TempDir folder;
  const at::Tensor numbers = at::arange(6, at::kFloat).view({2, 3});
  const SavedFile saved =
      SaveTensors(folder / "file", {{"b", numbers.t()}, {"a", at::full({}, 7, at::kLong)}});
  EXPECT_GT(saved.bytes, 6 * 4 + 8u);
  const std::vector<NamedTensor> read = LoadTensors(folder / "file");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "a");
  EXPECT_EQ(read[0].tensor.item<int64_t>(), 7);
  EXPECT_TRUE(at::equal(read[1].tensor, numbers.t()));
}

TEST(TensorFileTest, RejectsExistingFileAndInvalidContent) {
  const TempDir folder;
  const std::string file = folder.Write("file", "not tensors");
  ExpectRefused([&] { SaveTensors(file, {}); }, ExitCode::kIo, HasSubstr(file));
  ExpectRefused([&] { LoadTensors(file); }, ExitCode::kBadInput, HasSubstr(file));
  ExpectRefused([&] { LoadTensors(folder / "none"); }, ExitCode::kBadInput, HasSubstr("none"));
}

}  // namespace
}  // namespace dslaunch::tensor_file_test
