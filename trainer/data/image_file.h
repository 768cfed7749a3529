// Decodes PNG and JPEG files to 8-bit RGB images, and scales them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch {

struct RgbImage {
  int64_t width = 0, height = 0;  // sides in pixels, each at least 1
  std::vector<uint8_t> pixels;    // rows of red, green and blue bytes
};

// Decodes a PNG or JPEG, which is recognized by its first bytes. The result is equal to that of
// PIL's convert("RGB"): gray is repeated, transparency is dropped, 16 bits are cut to the upper 8,
// and CMYK is Adobe's (inverted). Color profiles, gamma and the orientation in Exif have no effect.
// The bytes are not trusted: an image has at most 65535 pixels per side and 2^27 pixels in all, and
// not more pixels than that many bytes can encode. Throws TrainError kBadInput, naming `file`, for
// everything else, including damaged and truncated images. Thread-safe.
RgbImage DecodeImage(const std::string& file, std::span<const uint8_t> bytes);

// Scales the shorter side to `size` and keeps the center of the image. The result is equal, bit by
// bit, to that of torchvision's Resize(size) and CenterCrop(size) for an image of PIL: bilinear
// with antialiasing. Writes `size` rows of `size` pixels of red, green and blue to `out`.
// Precondition: size >= 1.
void ResizeAndCrop(const RgbImage& image, int64_t size, std::span<uint8_t> out);

}  // namespace dslaunch
