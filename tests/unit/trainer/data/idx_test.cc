#include "trainer/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/own_memory.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::idx_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class IdxTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    const std::string file = folder_ / name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }
  std::string WriteGz(const std::string& name, const std::string& content) {
    const std::string file = folder_ / name;
    gzFile gz = gzopen(file.c_str(), "wb");
    gzwrite(gz, content.data(), static_cast<unsigned>(content.size()));
    gzclose(gz);
    return file;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempDir dir_;
  std::filesystem::path folder_ = dir_.path();
};

std::string Header(char type, const std::vector<uint32_t>& dims) {
  std::string header = {0, 0, type, static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) header += static_cast<char>(dim >> shift & 0xff);
  }
  return header;
}

TEST_F(IdxTest, ReadsPlainAndGzipped) {
  const std::string content = Header(8, {2, 1, 3}) + "abcdef";
  for (const std::string& file : {Write("plain", content), WriteGz("zipped.gz", content)}) {
    const IdxArray array = ReadIdx(file, 3);
    EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 1, 3}));
    EXPECT_EQ(std::string(array.bytes.begin(), array.bytes.end()), "abcdef");
  }
}

TEST_F(IdxTest, RefusesOtherArrays) {
  const auto refused = [&](const std::string& content, const std::string& words) {
    const std::string file = Write("file", content);
    ExpectRefused([&] { ReadIdx(file, 1); }, ExitCode::kBadInput,
                  AllOf(HasSubstr(file), HasSubstr(words)));
  };
  refused("", "not an IDX file");
  refused("hello, world", "not an IDX file");
  refused(Header(0x0D, {2}) + "abcdefgh", "type 13");
  refused(Header(8, {1, 2}) + "ab", "2 dimensions");
  refused(Header(8, {2}).substr(0, 6), "inside its header");
  refused(Header(8, {0}), "is 0");
  refused(Header(8, {3}) + "ab", "holds 2 bytes, but its header declares 3");
  refused(Header(8, {3}) + "abcd", "has data after the 3 bytes");
}

TEST_F(IdxTest, RefusesFalseHeaderWithoutAllocating) {
  const int64_t before = OwnMemoryKib("VmPeak");
  // The header declares 8 GiB.
  const std::string large = Write("large", Header(8, {0xffffffff, 2}) + "ab");
  ExpectRefused([&] { ReadIdx(large, 2); }, ExitCode::kBadInput, HasSubstr("holds 2 bytes"));
  const std::string overflowing =
      Write("overflowing", Header(8, {0xffffffff, 0xffffffff, 0xffffffff}) + "ab");
  ExpectRefused([&] { ReadIdx(overflowing, 3); }, ExitCode::kBadInput,
                HasSubstr("more than 16 GiB"));
  EXPECT_LT(OwnMemoryKib("VmPeak") - before, 1 << 20);
}

TEST_F(IdxTest, RefusesDamagedCompression) {
  std::mt19937 random(1);  // a fixed seed; random bytes do not compress
  std::string noise(100'000, 0);
  for (char& c : noise) c = static_cast<char>(random());
  WriteGz("whole.gz", Header(8, {100'000}) + noise);
  const std::string whole = Read("whole.gz");

  const std::string cut = Write("cut.gz", whole.substr(0, whole.size() / 2));
  ExpectRefused([&] { ReadIdx(cut, 1); }, ExitCode::kBadInput,
                AllOf(HasSubstr(cut), HasSubstr("fetch the file again")));
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 0x10;
  const std::string file = Write("flipped.gz", flipped);
  ExpectRefused([&] { ReadIdx(file, 1); }, ExitCode::kBadInput,
                AllOf(HasSubstr(file), HasSubstr("fetch the file again")));
}

TEST_F(IdxTest, NamesUnreadableFiles) {
  ExpectRefused([&] { ReadIdx(folder_ / "absent", 1); }, ExitCode::kIo, HasSubstr("absent"));
  ExpectRefused([&] { ReadIdx(folder_, 1); }, ExitCode::kIo, HasSubstr(folder_.string()));
}

TEST_F(IdxTest, ReadsAndChecksLabelsOfImages) {
  WriteGz("train-images-idx3-ubyte.gz", Header(8, {2, 1, 1}) + "ab");
  Write("train-labels-idx1-ubyte", Header(8, {2}) + std::string{1, 4});
  const LabeledImages images = ReadIdxImages(folder_, Split::kTrain, 5);
  EXPECT_EQ(images.dims, (std::vector<int64_t>{2, 1, 1, 1}));
  EXPECT_EQ(images.labels, (std::vector<uint8_t>{1, 4}));
  ExpectRefused([&] { ReadIdxImages(folder_, Split::kTrain, 4); }, ExitCode::kBadInput,
                AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("label 4 of sample 1")));
  ExpectRefused([&] { ReadIdxImages(folder_, Split::kTest, 5); }, ExitCode::kBadInput,
                HasSubstr("t10k-images-idx3-ubyte"));
  Write("train-labels-idx1-ubyte", Header(8, {3}) + std::string{1, 4, 1});
  ExpectRefused([&] { ReadIdxImages(folder_, Split::kTrain, 5); }, ExitCode::kBadInput,
                HasSubstr("3 labels for the 2 images"));
  ExpectRefused([&] { ReadIdxImages(folder_ / "no", Split::kTrain, 5); }, ExitCode::kBadInput,
                HasSubstr("data.path"));
}

}  // namespace
}  // namespace dslaunch::idx_test
