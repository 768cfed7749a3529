#include "trainer/memory_checkpoint/copy_layout.h"

#include <gtest/gtest.h>

namespace dslaunch {
namespace {

TEST(CopyLayoutTest, TensorsFollowTextAtMultiplesOf64) {
  const CopyLayout layout = LayOutCopy(100, {1, 64, 65, 0});
  EXPECT_EQ(layout.offsets, (std::vector<uint64_t>{16384, 16448, 16512, 16640}));
  EXPECT_EQ(layout.bytes, 16640u);
}

TEST(CopyLayoutTest, LongerTextTakesSameRoom) {
  EXPECT_EQ(LayOutCopy(3000, {8}).bytes, LayOutCopy(3010, {8}).bytes);
  EXPECT_GT(LayOutCopy(16380, {8}).bytes, LayOutCopy(3000, {8}).bytes);
}

TEST(CopyLayoutTest, ReturnsWrittenText) {
  std::vector<std::byte> copy(LayOutCopy(5, {}).bytes);
  WriteCopyText("state", copy);
  EXPECT_EQ(ReadCopyText(copy), "state");
}

TEST(CopyLayoutTest, RefusesCopyShorterThanItsText) {
  std::vector<std::byte> copy(LayOutCopy(5, {}).bytes);
  WriteCopyText("state", copy);
  EXPECT_EQ(ReadCopyText(std::span(copy).first(13)), "state");
  EXPECT_EQ(ReadCopyText(std::span(copy).first(12)), std::nullopt);
  EXPECT_EQ(ReadCopyText(std::span(copy).first(7)), std::nullopt);
  copy[7] = std::byte{0xff};
  EXPECT_EQ(ReadCopyText(copy), std::nullopt);
}

}  // namespace
}  // namespace dslaunch
