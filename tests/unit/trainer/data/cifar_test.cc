#include "trainer/data/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::cifar_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kPixels = 3072;

// Returns a record whose pixels all have `value`, except the first red pixel ('r') and the last
// blue pixel ('b').
std::string Record(const std::string& labels, char value) {
  std::string pixels(kPixels, value);
  pixels.front() = 'r';
  pixels.back() = 'b';
  return labels + pixels;
}

TEST(CifarTest, ReadsCifar10FromAllFiles) {
  const TempDir folder;
  folder.Write("data_batch_1.bin", Record("\x03", 'x') + Record("\x09", 'y'));
  folder.Write("data_batch_2.bin", Record("\x01", 'z'));
  folder.Write("test_batch.bin", Record("\x02", 't'));
  const LabeledImages train = ReadCifarImages(folder.path(), Split::kTrain, 10);
  EXPECT_THAT(train.dims, ElementsAre(3, 3, 32, 32));
  EXPECT_THAT(train.labels, ElementsAre(3, 9, 1));
  ASSERT_EQ(train.pixels.size(), 3 * kPixels);
  EXPECT_EQ(train.pixels[kPixels], 'r');
  EXPECT_EQ(train.pixels[kPixels + 1], 'y');
  EXPECT_EQ(train.pixels[2 * kPixels - 1], 'b');
  EXPECT_EQ(train.pixels[2 * kPixels + 1], 'z');
  EXPECT_THAT(ReadCifarImages(folder.path(), Split::kTest, 10).labels, ElementsAre(2));
}

TEST(CifarTest, ReadsFineLabelsOfCifar100) {
  const TempDir folder;
  folder.Write("train.bin", Record("\x13\x63", 'x') + Record("\x01\x02", 'y'));
  folder.Write("test.bin", Record("\x05\x06", 't'));
  const LabeledImages train = ReadCifarImages(folder.path(), Split::kTrain, 100);
  EXPECT_THAT(train.labels, ElementsAre(99, 2));
  EXPECT_EQ(train.pixels[0], 'r');
  EXPECT_EQ(train.pixels[1], 'x');
  EXPECT_THAT(ReadCifarImages(folder.path(), Split::kTest, 100).labels, ElementsAre(6));
}

TEST(CifarTest, RefusesMissingAndMalformedFiles) {
  const TempDir folder;
  const auto refused = [&](Split split, const testing::Matcher<std::string>& message) {
    ExpectRefused([&] { ReadCifarImages(folder.path(), split, 10); }, ExitCode::kBadInput, message);
  };
  refused(Split::kTrain,
          AllOf(HasSubstr(folder.path()), HasSubstr("neither"), HasSubstr("data.path")));
  const std::string first = folder.Write("data_batch_1.bin", "");
  refused(Split::kTrain, AllOf(HasSubstr(first), HasSubstr("0 bytes")));
  folder.Write("data_batch_1.bin", Record("\x01", 'x').substr(1));
  refused(Split::kTrain, AllOf(HasSubstr(first), HasSubstr("3072 bytes"), HasSubstr("3073")));
  folder.Write("data_batch_1.bin", Record("\x01", 'x') + Record("\x0A", 'y'));
  refused(Split::kTrain, AllOf(HasSubstr(first), HasSubstr("label 10 of sample 1")));
  refused(Split::kTest, HasSubstr("test_batch.bin"));
  folder.Write("data_batch_1.bin", Record("\x01", 'x'));
  folder.Write("data_batch_3.bin", Record("\x01", 'x'));
  refused(Split::kTrain, HasSubstr("data_batch_2.bin does not exist"));
  folder.Write("train.bin", Record("\x01\x01", 'x'));
  refused(Split::kTrain, HasSubstr("both"));
  ExpectRefused([&] { ReadCifarImages(first, Split::kTrain, 10); }, ExitCode::kBadInput,
                AllOf(HasSubstr("is a file, but data.type cifar"), HasSubstr("data.type=csv")));
}

TEST(CifarTest, ReportsPositionOfWrongLabelInItsFile) {
  const TempDir folder;
  folder.Write("data_batch_1.bin", Record("\x01", 'x'));
  const std::string second = folder.Write("data_batch_2.bin", Record("\x7F", 'x'));
  ExpectRefused([&] { ReadCifarImages(folder.path(), Split::kTrain, 10); }, ExitCode::kBadInput,
                AllOf(HasSubstr(second), HasSubstr("label 127 of sample 0")));
}

}  // namespace
}  // namespace dslaunch::cifar_test
