#include "trainer/data/image_file.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>

// jpeglib.h uses types of cstdio without including it, so it must follow cstdio.
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include "trainer/data/data_file.h"

namespace dslaunch {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kMaxSide = 65535;
constexpr int64_t kMaxPixels = int64_t{1} << 27;
// The maximum pixels per byte of a file; a header that declares more pixels is rejected. Deflate
// produces at most 1032 bytes per byte, and Huffman codes of JPEG produce at most 8 blocks of 64
// pixels in half of the positions.
constexpr int64_t kMaxPixelsPerByte = 1032 * 8;
constexpr int64_t kMaxJpegPixelsPerByte = 1024;
// Limits the scans of a JPEG, because each scan visits the whole image.
constexpr int kMaxScans = 500;
constexpr uint8_t kPngMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr uint8_t kJpegMagic[] = {0xFF, 0xD8, 0xFF};

bool StartsWith(std::span<const uint8_t> bytes, std::span<const uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

void CheckSize(const std::string& file, int64_t width, int64_t height, size_t bytes,
               int64_t most_per_byte) {
  const std::string declared =
      "declares " + std::to_string(width) + " x " + std::to_string(height) + " pixels, ";
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    RefuseDataFile(file, declared + "but at most " + std::to_string(kMaxSide) + " a side and " +
                             std::to_string(kMaxPixels) + " in all are read; scale it down");
  }
  if (width * height > static_cast<int64_t>(bytes + 1) * most_per_byte) {
    RefuseDataFile(file, declared + "more than its " + std::to_string(bytes) +
                             " bytes can hold; the file is damaged");
  }
}

// Returns the end of an error message about a damaged file of format `kind`. It quotes the
// library's `message`, with '?' for unprintable characters.
std::string Damage(std::string_view kind, std::string message) {
  for (char& c : message) {
    if (c < ' ' || c > '~') c = '?';
  }
  return "is a damaged " + std::string(kind) + " file (" + message +
         "); fetch it again, or remove it";
}

// Converts inverted CMYK to RGB as PIL does: (255 - ink) * black / 255, with PIL's rounding. `inks`
// and `out` are arrays of `pixels` pixels.
void InksToRgb(const uint8_t* inks, size_t pixels, uint8_t* out) {
  for (const uint8_t* ink = inks; ink < inks + pixels * 4; ink += 4) {
    for (int i = 0; i < kChannels; ++i) {
      const int product = (255 - ink[i]) * ink[3] + 128;
      const int inked = ((product >> 8) + product) >> 8;
      *out++ = static_cast<uint8_t>(std::clamp(ink[3] - inked, 0, 255));
    }
  }
}

// Reads a PNG. Errors of libpng and libjpeg jump out of C code to the last call of setjmp without
// running destructors, so functions that call setjmp, and callbacks, have no variables with
// destructors.

class PngReader {
 public:
  PngReader(const std::string& file, std::span<const uint8_t> bytes)
      : file_(file), bytes_(bytes), rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &OnError, &OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) Destroy(), throw std::bad_alloc();
  }
  PngReader(const PngReader&) = delete;
  ~PngReader() { Destroy(); }

  RgbImage Read() {
    if (!ReadHeader()) Fail();
    RgbImage image{png_get_image_width(png_, info_), png_get_image_height(png_, info_), {}};
    CheckSize(file_, image.width, image.height, bytes_.size(), kMaxPixelsPerByte);
    image.pixels.resize(static_cast<size_t>(image.width * image.height * kChannels));
    if (!ReadPixels(image.pixels.data(), image.width, image.height)) Fail();
    return image;
  }

 private:
  bool ReadHeader() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &OnRead);
    png_set_user_limits(png_, kMaxSide, kMaxSide);
    // The contents of color profiles, texts and similar chunks are not needed, so these chunks are
    // skipped.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    return true;
  }

  bool ReadPixels(uint8_t* pixels, int64_t width, int64_t height) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const auto row_bytes = static_cast<size_t>(width * kChannels);
    if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "unknown kind of pixels");
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t row = 0; row < height; ++row) {
        png_read_row(png_, pixels + static_cast<size_t>(row) * row_bytes, nullptr);
      }
    }
    return true;
  }

  [[noreturn]] void Fail() const { RefuseDataFile(file_, Damage("PNG", message_)); }

  void Destroy() { png_destroy_read_struct(&png_, &info_, nullptr); }

  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof self->message_, "%s", message);
    png_longjmp(png, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}

  static void OnRead(png_structp png, png_bytep out, size_t size) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > self->rest_.size()) png_error(png, "it ends too early");
    std::memcpy(out, self->rest_.data(), size);
    self->rest_ = self->rest_.subspan(size);
  }

  const std::string& file_;
  std::span<const uint8_t> bytes_;
  std::span<const uint8_t> rest_;
  char message_[128] = "";
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

class JpegReader {
 public:
  JpegReader(const std::string& file, std::span<const uint8_t> bytes) : file_(file), bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = &OnError;
    errors_.base.emit_message = &OnMessage;
    progress_.progress_monitor = &OnProgress;
  }
  JpegReader(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  RgbImage Read() {
    if (!ReadHeader()) Fail();
    if (info_.arith_code) {
      RefuseDataFile(file_, "is a JPEG with arithmetic coding, which is not read; convert it");
    }
    RgbImage image{info_.image_width, info_.image_height, {}};
    CheckSize(file_, image.width, image.height, bytes_.size(), kMaxJpegPixelsPerByte);
    image.pixels.resize(static_cast<size_t>(image.width * image.height * kChannels));
    const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    std::vector<uint8_t> row(inks ? static_cast<size_t>(image.width) * 4 : 0);
    if (!(inks ? ReadInks(image.pixels.data(), row.data()) : ReadPixels(image.pixels.data())))
      Fail();
    return image;
  }

 private:
  struct Errors {
    jpeg_error_mgr base;  // must be first, because a pointer to it is cast to Errors
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
  };

  bool ReadHeader() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool ReadPixels(uint8_t* pixels) {
    if (setjmp(errors_.jump) != 0) return false;
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + size_t{info_.output_scanline} * info_.output_width * kChannels;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }

  // Reads the pixels of a CMYK image as RGB. `inks` has room for one row of four inks per pixel.
  bool ReadInks(uint8_t* pixels, uint8_t* inks) {
    if (setjmp(errors_.jump) != 0) return false;
    info_.out_color_space = JCS_CMYK;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      const size_t row = size_t{info_.output_scanline} * info_.output_width * kChannels;
      jpeg_read_scanlines(&info_, &inks, 1);
      InksToRgb(inks, info_.output_width, pixels + row);
    }
    return true;
  }

  [[noreturn]] void Fail() const { RefuseDataFile(file_, Damage("JPEG", errors_.message)); }

  [[noreturn]] static void OnError(j_common_ptr info) {
    auto* errors = reinterpret_cast<Errors*>(info->err);
    info->err->format_message(info, errors->message);
    std::longjmp(errors->jump, 1);
  }

  // Treats warnings about missing image data as errors, because libjpeg would otherwise invent the
  // data and continue.
  static void OnMessage(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_JPEG_EOF:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_MUST_RESYNC:
      case JWRN_BOGUS_PROGRESSION:
      case JWRN_NOT_SEQUENTIAL:
        OnError(info);
      default:
        break;  // problems outside of the image data are ignored
    }
  }

  static void OnProgress(j_common_ptr info) {
    const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
    if (decompress->input_scan_number <= kMaxScans) return;
    auto* errors = reinterpret_cast<Errors*>(info->err);
    std::snprintf(errors->message, sizeof errors->message, "more than %d scans", kMaxScans);
    std::longjmp(errors->jump, 1);
  }

  const std::string& file_;
  std::span<const uint8_t> bytes_;
  Errors errors_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
};

// The weights of input pixels for each output pixel along an axis, as in PIL's tables for its
// bilinear filter.
class Weights {
 public:
  // Computes the weights for the outputs first .. first + count - 1 of an axis that is scaled from
  // `from` to `to` pixels.
  Weights(int64_t from, int64_t to, int64_t first, int64_t count) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double reach = std::max(scale, 1.0);
    for (int64_t i = first; i < first + count; ++i) {
      const double center = (static_cast<double>(i) + 0.5) * scale;
      const int64_t begin = std::max(static_cast<int64_t>(center - reach + 0.5), int64_t{0});
      const int64_t end = std::min(static_cast<int64_t>(center + reach + 0.5), from);
      std::vector<double> exact;
      double sum = 0;
      for (int64_t k = begin; k < end; ++k) {
        const double distance = std::abs((static_cast<double>(k) - center + 0.5) * (1 / reach));
        exact.push_back(distance < 1 ? 1 - distance : 0);
        sum += exact.back();
      }
      spans_.push_back({begin, end - begin, weights_.size()});
      for (const double weight : exact) {
        weights_.push_back(static_cast<int32_t>(0.5 + weight / sum * (1 << kBits)));
      }
    }
  }

  // Return the range [begin, end) of input pixels that have weights for any output.
  int64_t begin() const { return spans_.front().begin; }
  int64_t end() const { return spans_.back().begin + spans_.back().count; }

  // Returns one channel of output pixel `i`. `in` points to the channel in input pixel begin(), and
  // `stride` is the distance in bytes to the same channel of the next pixel.
  uint8_t Sum(size_t i, const uint8_t* in, int64_t stride) const {
    const Span& span = spans_[i];
    const int32_t* weight = &weights_[span.weights];
    in += (span.begin - begin()) * stride;
    int32_t sum = 1 << (kBits - 1);
    for (int64_t k = 0; k < span.count; ++k, in += stride) sum += *in * weight[k];
    return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255));
  }

 private:
  static constexpr int kBits = 32 - 8 - 2;
  struct Span {
    int64_t begin, count;
    size_t weights;  // index in weights_ of the weight of pixel `begin`
  };
  std::vector<Span> spans_;
  std::vector<int32_t> weights_;
};

// Returns the weights for the `size` central pixels of an axis of `side` pixels. The image is
// scaled so that its shorter side, `shorter`, becomes `size`.
Weights CentreOf(int64_t side, int64_t shorter, int64_t size) {
  const auto scaled =
      side == shorter
          ? size
          : static_cast<int64_t>(static_cast<double>(size * side) / static_cast<double>(shorter));
  const int64_t half = (scaled - size) / 2;
  const bool odd = (scaled - size) % 2 != 0;
  // Python rounds halves to even numbers, so the offset of an odd margin is rounded in this way.
  return {side, scaled, odd ? half + half % 2 : half, size};
}

}  // namespace

RgbImage DecodeImage(const std::string& file, std::span<const uint8_t> bytes) {
  if (StartsWith(bytes, kPngMagic)) return PngReader(file, bytes).Read();
  if (StartsWith(bytes, kJpegMagic)) return JpegReader(file, bytes).Read();
  RefuseDataFile(file,
                 "is neither a PNG nor a JPEG file (wrong first bytes); convert or remove it");
}

void ResizeAndCrop(const RgbImage& image, int64_t size, std::span<uint8_t> out) {
  const int64_t shorter = std::min(image.width, image.height);
  const Weights across = CentreOf(image.width, shorter, size);
  const Weights down = CentreOf(image.height, shorter, size);
  const int64_t row_bytes = size * kChannels;
  std::vector<uint8_t> rows;  // source rows that `down` reads, scaled horizontally
  rows.reserve(static_cast<size_t>((down.end() - down.begin()) * row_bytes));
  for (int64_t y = down.begin(); y < down.end(); ++y) {
    const uint8_t* row =
        &image.pixels[static_cast<size_t>((y * image.width + across.begin()) * kChannels)];
    for (size_t x = 0; x < static_cast<size_t>(size); ++x) {
      for (int64_t c = 0; c < kChannels; ++c) rows.push_back(across.Sum(x, row + c, kChannels));
    }
  }
  uint8_t* to = out.data();
  for (size_t y = 0; y < static_cast<size_t>(size); ++y) {
    for (int64_t x = 0; x < row_bytes; ++x) *to++ = down.Sum(y, rows.data() + x, row_bytes);
  }
}

}  // namespace dslaunch
