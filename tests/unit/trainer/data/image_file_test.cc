#include "trainer/data/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/trainer/expect_refused.h"
#include "trainer/base/crc32.h"

namespace dslaunch::image_file_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kSize = 12;  // width and height of the images from images/make
const std::filesystem::path kImages = DSLAUNCH_TEST_IMAGES;

std::string ContentOf(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

RgbImage Decode(const std::string& bytes) {
  return DecodeImage("x.png", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

void Refused(const std::string& bytes, const testing::Matcher<std::string>& message) {
  ExpectRefused([&] { Decode(bytes); }, ExitCode::kBadInput, AllOf(StartsWith("x.png: "), message));
}

std::string BigEndian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

TEST(ImageFileTest, MatchesTorchvisionForAllKinds) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kImages)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".ppm") continue;
    ++files;
    std::vector<uint8_t> pixels(kSize * kSize * 3);
    ResizeAndCrop(
        Decode(ContentOf(std::filesystem::path(DSLAUNCH_TEST_IMAGE_FILES) / entry.path().stem())),
        kSize, pixels);
    const std::string expected = ContentOf(entry.path());
    EXPECT_EQ("P6\n12 12\n255\n" + std::string(pixels.begin(), pixels.end()), expected) << name;
  }
  EXPECT_EQ(files, 16);
}

TEST(ImageFileTest, RefusesOtherFormats) {
  Refused("", HasSubstr("neither a PNG nor a JPEG"));
  Refused("GIF89a", HasSubstr("neither a PNG nor a JPEG"));
}

TEST(ImageFileTest, RefusesTruncatedAndDamagedFiles) {
  const std::filesystem::path folder = DSLAUNCH_TEST_IMAGE_FILES;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string whole = ContentOf(entry.path());
    SCOPED_TRACE(entry.path().filename().string());
    const bool png = entry.path().extension() == ".png";
    Refused(whole.substr(0, whole.size() / 2),
            HasSubstr(png ? "is a damaged PNG file (" : "is a damaged JPEG file ("));
  }
  std::string damaged = ContentOf(folder / "rgb.png");
  damaged[damaged.size() / 2] ^= 1;
  Refused(damaged, HasSubstr("is a damaged PNG file ("));
}

TEST(ImageFileTest, RefusesDimensionsTooLargeForFileSize) {
  std::string png = ContentOf(std::filesystem::path(DSLAUNCH_TEST_IMAGE_FILES) / "rgb.png");
  const auto with_size = [&](uint32_t width, uint32_t height) {
    png.replace(16, 8, BigEndian(width) + BigEndian(height));
    return png.replace(29, 4, BigEndian(Crc32(&png[12], 17)));
  };
  Refused(with_size(10000, 10000), HasSubstr("10000 x 10000 pixels, more than its"));
  Refused(with_size(60000, 60000), HasSubstr("but at most 65535 a side"));
  Refused(with_size(70000, 1), HasSubstr("damaged PNG"));
  std::string jpeg = ContentOf(std::filesystem::path(DSLAUNCH_TEST_IMAGE_FILES) / "gray.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  jpeg.replace(frame + 5, 4, "\x20\x20\x20\x20");
  Refused(jpeg, HasSubstr("8224 x 8224 pixels, more than its 549 bytes can hold"));
}

TEST(ImageFileTest, ScalesNarrowImagesWithoutFullSizeCopy) {
  const RgbImage line{1, 60000, std::vector<uint8_t>(180000, 7)};
  std::vector<uint8_t> pixels(4096 * 3 * 4096);
  ResizeAndCrop(line, 4096, pixels);
  EXPECT_THAT(std::span(pixels).last(6), testing::Each(7));
}

}  // namespace
}  // namespace dslaunch::image_file_test
