// Tests readers with mutations of files that the trainer itself writes, in addition to the kept
// corpus (edges_test.cc).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/fuzz/edge_test.h"
#include "tests/fuzz/hostile_readers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/checkpoint/sample_manifest.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

constexpr size_t kLengthBytes = 8;

class ReadersFuzzTest : public testing::Test {
 protected:
  // Mutates `good` `count` times. `around` makes the reader's input from each mutation.
  template <class Around>
  void Fuzz(bool (*reads)(const std::string&), const std::string& good, int count, Around around) {
    ASSERT_TRUE(reads(around(good))) << "the input before its changes";
    int accepted = 0;
    for (int i = 0; i < count; ++i) {
      const std::string input = around(mutator_.Changed(good));
      try {
        accepted += reads(input) ? 1 : 0;
      } catch (const std::exception& error) {
        FAIL() << error.what() << " with " << testing::PrintToString(input);
      }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, count);
  }
  void Fuzz(bool (*reads)(const std::string&), const std::string& good, int count) {
    Fuzz(reads, good, count, [](const std::string& text) { return text; });
  }

  Mutator mutator_{FuzzSeed()};
};

TEST_F(ReadersFuzzTest, SurvivesMutatedSafetensors) {
  const TempDir folder;
  const std::vector<double> numbers(12);
  WriteSafetensors(folder / "t",
                   {{"fc.weight", "F32", {2, 3}, numbers.data()},
                    {"a\xc3\xa4", "BF16", {1, 1, 5}, numbers.data()},
                    {"none", "F64", {0, 4}, nullptr},
                    {"step", "I64", {}, numbers.data()},
                    {"mask", "BOOL", {3}, numbers.data()}},
                   {{"format", "pt"}});
  std::ifstream stream(folder / "t", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  Fuzz(ReadsSafetensors, file, 5000);

  // Mutates only the header and keeps its length field correct.
  size_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= size_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  Fuzz(ReadsSafetensors, file.substr(kLengthBytes, header_bytes), 20000,
       [&](const std::string& header) {
         std::string bytes;
         for (size_t i = 0; i < kLengthBytes; ++i) {
           bytes += static_cast<char>(header.size() >> (8 * i));
         }
         return bytes + header + file.substr(kLengthBytes + header_bytes);
       });
}

TEST_F(ReadersFuzzTest, SurvivesMutatedManifests) {
  for (const Manifest& sample : {SampleManifest(), SampleManifestWithCuts()}) {
    const std::string text = FormatManifest(sample);
    Fuzz(ReadsManifest, text.substr(text.find('\n') + 1), 15000);
  }
}

}  // namespace
}  // namespace dslaunch
