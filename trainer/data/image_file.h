// Images from PNG and JPEG files, as 8-bit RGB.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch {

struct RgbImage {
  int64_t width = 0, height = 0;  // at least 1
  std::vector<uint8_t> pixels;    // rows of red, green, blue
};

// Decodes a PNG or JPEG, recognized by its first bytes, to the values that PIL's convert("RGB")
// gives: gray is repeated, transparency is dropped, 16 bits are cut to the upper 8, CMYK is Adobe's
// (inverted). Color profiles, gamma and the orientation in Exif have no effect. The bytes are not
// trusted: at most 65535 pixels per side and 2^27 in all, and not more pixels than that many bytes
// can encode. Throws TrainError kBadInput, naming `file`, for anything else, damaged and truncated
// images included. Any thread.
RgbImage DecodeImage(const std::string& file, std::span<const uint8_t> bytes);

// Scales the shorter side to `size` and keeps the centre, as torchvision's Resize(size) and
// CenterCrop(size) do with an image of PIL: bilinear with antialiasing, bit by bit the same. Writes
// `size` rows of `size` pixels of red, green, blue to `out`. Precondition: size >= 1.
void ResizeAndCrop(const RgbImage& image, int64_t size, std::span<uint8_t> out);

}  // namespace dslaunch
