// Valid inputs, changed at random. The seed is printed; DSLAUNCH_FUZZ_SEED repeats one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/hostile_readers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/sample_manifest.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/models/huggingface_config.h"

namespace dslaunch {
namespace {

constexpr size_t kLengthBytes = 8;

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  // Up to four changes of any kind.
  std::string Changed(std::string text) {
    for (size_t changes = 1 + Below(4); changes > 0 && !text.empty(); --changes) Change(text);
    return text;
  }

 private:
  void Change(std::string& text) {
    const size_t at = Below(text.size());
    const size_t length = std::min(text.size() - at, 1 + Below(40));
    switch (Below(7)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(random_());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(Below(text.size()), text.substr(at, length));
        break;
      case 4:
        text.insert(at, kWords[Below(std::size(kWords))]);
        break;
      case 5:
        ReplaceNumber(text, at);
        break;
      default:
        if (Below(8) == 0) text.resize(at);
    }
  }

  // The next number becomes another one, most often of the same length or a word of kWords.
  void ReplaceNumber(std::string& text, size_t at) {
    constexpr char kDigits[] = "0123456789";
    const size_t begin = text.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin,
                 Below(2) == 0 ? std::to_string(Below(70)) : kWords[Below(std::size(kWords))]);
  }

  static constexpr const char* kWords[] = {"0",
                                           "-0",
                                           "-1",
                                           "1.0",
                                           "1e999",
                                           "4294967296",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551615",
                                           "18446744073709551616",
                                           "null",
                                           "true",
                                           "[]",
                                           "{}",
                                           "[[[[[[[[",
                                           "{\"a\":{\"a\":{\"a\":",
                                           "\"\"",
                                           "\"__metadata__\":",
                                           "\"../../etc/passwd\"",
                                           "\\u0000",
                                           "\\ud800",
                                           "\xff",
                                           "\xc3\xa4",
                                           "/**/",
                                           "//\n",
                                           "\"F64\"",
                                           "\"data_offsets\":[0,8],",
                                           "\"shape\":[2],",
                                           "\"slices\":[],",
                                           ",",
                                           ":",
                                           "]",
                                           "}",
                                           "\""};
  std::mt19937 random_;
};

class ReadersFuzzTest : public testing::Test {
 protected:
  // Changes `good` `count` times; `around` makes the reader's input of it.
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

  const unsigned seed_ = [] {
    const char* given = std::getenv("DSLAUNCH_FUZZ_SEED");
    const unsigned seed =
        given == nullptr ? std::random_device()() : static_cast<unsigned>(std::atoll(given));
    std::printf("DSLAUNCH_FUZZ_SEED=%u\n", seed);
    return seed;
  }();
  Mutator mutator_{seed_};
};

TEST_F(ReadersFuzzTest, Safetensors) {
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

  // Changes that the header's length knows of, and mostly the data's.
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

TEST_F(ReadersFuzzTest, Manifest) {
  const std::string text = FormatManifest(SampleManifest());
  Fuzz(ReadsManifest, text.substr(text.find('\n') + 1), 15000);
}

TEST_F(ReadersFuzzTest, Json) {
  Fuzz(ReadsJson, R"({"a": [1, -2.5e3, "x\u00e4\n"], /* why */ "b": {"c": null, "d": [true, {}]}})",
       15000);
}

TEST_F(ReadersFuzzTest, WhatLiesBesideWeights) {
  Fuzz(ReadsHuggingFaceConfig, HuggingFaceConfigText(Gpt2Config{}, "float32"), 1500);
  Fuzz(
      ReadsWeightIndex,
      R"({"metadata": {"total_size": 8}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})",
      1500);
}

}  // namespace
}  // namespace dslaunch
