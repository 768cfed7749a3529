#include "trainer/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"

namespace dslaunch::safetensors_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Contents(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string WithHeader(const std::string& header, const std::string& data) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text + header + data;
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

// Returns the reader's message for a file with this content; "" if the file is accepted.
std::string Refusal(const std::string& content) {
  const TempDir folder;
  const std::string file = folder.Write("t.safetensors", content);
  try {
    SafetensorsFile reader(file);
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_THAT(error.what(), HasSubstr(file));
    return error.what();
  }
}

TEST(SafetensorsTest, RoundTripKeepsTensors) {
  const TempDir folder;
  const std::string file = folder / "t.safetensors";
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const int64_t step = 7;
  const FileSum sum = WriteSafetensors(file, {{"fc.weight", "F32", {2, 3}, weights.data()},
                                              {"step", "I64", {}, &step},
                                              {"empty", "F32", {0, 4}, nullptr}});
  EXPECT_EQ(sum, SumFile(file));
  EXPECT_EQ(sum.bytes, Contents(file).size());

  const SafetensorsFile reader(file);
  ASSERT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensors().at("fc.weight").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(reader.tensors().at("fc.weight").begin % 8, 0u) << "readers map the file";
  std::vector<float> read(6);
  reader.Read(reader.tensors().at("fc.weight"), read.data());
  EXPECT_EQ(read, weights);
  int64_t read_step = 0;
  reader.Read(reader.tensors().at("step"), &read_step);
  EXPECT_EQ(read_step, 7);
}

TEST(SafetensorsTest, ReadsPartOfTensor) {
  const TempDir folder;
  const std::vector<uint8_t> before = {9, 9, 9}, values = {0, 1, 2, 3, 4, 5};
  WriteSafetensors(folder / "t",
                   {{"before", "U8", {3}, before.data()}, {"a", "U8", {2, 3}, values.data()}});
  const SafetensorsFile reader(folder / "t");
  const SafetensorsFile::Tensor& tensor = reader.tensors().at("a");
  std::vector<uint8_t> part(4, 7);
  reader.Read(tensor, 2, 3, part.data());
  EXPECT_EQ(part, (std::vector<uint8_t>{2, 3, 4, 7}));
  reader.Read(tensor, 3, 3, part.data());
  EXPECT_EQ(part, (std::vector<uint8_t>{3, 4, 5, 7}));
  reader.Read(tensor, 6, 0, part.data());
  EXPECT_EQ(part, (std::vector<uint8_t>{3, 4, 5, 7}));

  EXPECT_THROW(reader.Read(tensor, 4, 3, part.data()), TrainError);
  EXPECT_THROW(reader.Read(tensor, 7, 0, part.data()), TrainError);
  EXPECT_THROW(reader.Read(tensor, UINT64_MAX, 2, part.data()), TrainError);
  EXPECT_EQ(part, (std::vector<uint8_t>{3, 4, 5, 7}));
}

TEST(SafetensorsTest, WritesMetadataAndIgnoresIt) {
  const TempDir folder;
  const uint8_t value = 1;
  WriteSafetensors(folder / "t", {{"a", "U8", {1}, &value}}, {{"format", "pt"}});
  EXPECT_THAT(Contents(folder / "t"), HasSubstr(R"("__metadata__":{"format":"pt"})"));
  EXPECT_EQ(SafetensorsFile(folder / "t").tensors().size(), 1u);
  WriteSafetensors(folder / "without", {{"a", "U8", {1}, &value}});
  EXPECT_THAT(Contents(folder / "without"), Not(HasSubstr("__metadata__")));
}

TEST(SafetensorsTest, WritingInPiecesMakesTheSameFile) {
  const TempDir folder;
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const int64_t step = 7;
  const FileSum at_once = WriteSafetensors(
      folder / "at_once", {{"w", "F32", {2, 3}, weights.data()}, {"step", "I64", {}, &step}},
      {{"format", "pt"}});
  NewSafetensorsFile file(folder / "t", {{"w", "F32", {2, 3}}, {"step", "I64", {}}},
                          {{"format", "pt"}});
  file.Write(weights.data(), 20);
  file.Write(weights.data() + 5, 4);
  EXPECT_THROW(file.Finish(), TrainError) << "a tensor is missing";
  EXPECT_THROW(file.Write(weights.data(), 9), TrainError) << "more than its bytes";
  file.Write(&step, 8);
  EXPECT_EQ(file.Finish(), at_once);
  EXPECT_EQ(Contents(folder / "t"), Contents(folder / "at_once"));
}

TEST(SafetensorsTest, NeverOverwrites) {
  const TempDir folder;
  EXPECT_THROW(WriteSafetensors(folder.Write("t", "mine"), {}), TrainError);
  EXPECT_EQ(Contents(folder / "t"), "mine");
}

TEST(SafetensorsTest, ReadsFilesOfOtherPrograms) {
  EXPECT_EQ(Refusal(WithHeader("{\"__metadata__\":{\"format\":\"pt\"}," +
                                   Entry("b", "U8", "[2]", "[1,3]") + "," +
                                   Entry("a", "BOOL", "[1,1]", "[0,1]") + "}   ",
                               "xyz")),
            "");
  EXPECT_EQ(Refusal(WithHeader("{}", "")), "");
}

// A file begins with the length of its header, which may be the bytes with which a pickle begins.
TEST(SafetensorsTest, AcceptsHeaderOfAnyLength) {
  for (size_t length = 2; length < 1600; ++length) {
    ASSERT_EQ(Refusal(WithHeader("{}" + std::string(length - 2, ' '), "")), "") << length;
  }
}

TEST(SafetensorsTest, SanitizesNamesInMessages) {
  const std::string message = Refusal(WithHeader(
      "{" + Entry("a\\n\\u001b[2Jb" + std::string(9000, 'c'), "F31", "[]", "[0,4]") + "}", "1234"));
  EXPECT_THAT(message, HasSubstr("tensor a"));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
  EXPECT_LT(message.size(), 1000u);
}

TEST(SafetensorsTest, RefusesInvalidFiles) {
  const std::string good = "{" + Entry("a", "F32", "[2]", "[0,8]") + "}";
  ASSERT_EQ(Refusal(WithHeader(good, "12345678")), "");
  const struct {
    std::string content, words;
  } cases[] = {
      {"", "too few"},
      {"1234567", "too few"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "declares a header of"},
      {std::string("\x00\x01\x00\x00\x00\x00\x00\x00{}", 10), "ends inside its header"},
      {std::string("PK\x03\x04 and more of it"), "pickle"},
      {std::string("\x80\x02}q\x00(X\x01\x00", 9), "pickle"},
      {WithHeader("[]", ""), "not a JSON object"},
      {WithHeader("{\"a\"", ""), "not valid JSON"},
      {WithHeader(good, "1234567"), "cut off"},
      {WithHeader(good, "123456789"), "has 1 extra bytes"},
      {WithHeader(
           "{" + Entry("a", "U8", "[1]", "[0,1]") + "," + Entry("a", "U8", "[1]", "[1,2]") + "}",
           "xy"),
       "given twice"},
      {WithHeader(
           "{" + Entry("a", "U8", "[2]", "[0,2]") + "," + Entry("b", "U8", "[2]", "[1,3]") + "}",
           "xyz"),
       "overlaps"},
      {WithHeader(
           "{" + Entry("a", "U8", "[1]", "[0,1]") + "," + Entry("b", "U8", "[1]", "[2,3]") + "}",
           "xyz"),
       "hole before tensor b"},
      {WithHeader("{" + Entry("a", "F31", "[2]", "[0,8]") + "}", "12345678"), "unknown dtype"},
      {WithHeader("{" + Entry("a", "F32", "[3]", "[0,8]") + "}", "12345678"), "needs 12"},
      {WithHeader("{" + Entry("a", "F32", "[-2]", "[0,8]") + "}", "12345678"), "dimension"},
      {WithHeader("{" + Entry("a", "F32", "[2.0]", "[0,8]") + "}", "12345678"), "dimension"},
      {WithHeader("{" + Entry("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", "12345678"),
       "too large"},
      {WithHeader("{" + Entry("a", "F32", "[4611686018427387904]", "[0,8]") + "}", "12345678"),
       "too large"},
      {WithHeader("{" + Entry("a", "F32", "[2]", "[8,0]") + "}", "12345678"), "data_offsets"},
      {WithHeader("{" + Entry("a", "F32", "[2]", "[0,18446744073709551615]") + "}", "12345678"),
       "cut off"},
      {WithHeader("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "12345678"), "must have"},
      {WithHeader("{\"a\":1}", ""), "must have"},
      {WithHeader("{/**/}", ""), "not valid JSON"},
      {WithHeader("{\"__metadata__\":1}", ""), "__metadata__ is not"},
      {WithHeader("{\"__metadata__\":{\"step\":1}}", ""), "__metadata__ is not"},
      {WithHeader("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", ""), "nested"},
  };
  for (const auto& c : cases) EXPECT_THAT(Refusal(c.content), HasSubstr(c.words));
}

// The reader must accept or refuse any bytes, and never read a tensor beyond the end of the file.
TEST(SafetensorsTest, ReadsOrRefusesMutatedFiles) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TempDir folder;
  const std::string good = WithHeader(
      "{" + Entry("a", "F32", "[2]", "[0,8]") + "," + Entry("b", "I64", "[1,1]", "[8,16]") + "}",
      "0123456789abcdef");
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (unsigned changes = random() % 3; changes-- > 0;) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    const std::string file = folder.Write("t", bytes);
    try {
      const SafetensorsFile reader(file);
      ++accepted;
      for (const auto& [name, tensor] : reader.tensors()) {
        ASSERT_LE(tensor.end, bytes.size());
        std::vector<char> data(tensor.end - tensor.begin);
        reader.Read(tensor, data.data());
      }
    } catch (const TrainError& error) {
      ASSERT_EQ(error.code(), ExitCode::kBadInput) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace dslaunch::safetensors_test
