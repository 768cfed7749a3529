#include "trainer/data/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <random>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::token_stream_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kVocab = 50257;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string LlmcHeader(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return Bytes(header);
}

std::vector<int64_t> All(const TokenStream& stream, int64_t vocab_size = kVocab) {
  std::vector<int64_t> tokens(static_cast<size_t>(stream.size()));
  stream.Read(0, tokens, vocab_size);
  return tokens;
}

// Fields of a Megatron index file, which may be invalid.
struct Index {
  uint64_t version = 1;
  char type = 8;
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers;
  std::vector<int64_t> documents;
  std::string modes = {};
  uint64_t more_sequences = 0;  // number of sequences that the header declares but the file lacks
  uint64_t more_documents = 0;

  std::string Write() const {
    return std::string("MMIDIDX\0\0", 9) + Bytes<uint64_t>({version}) + type +
           Bytes<uint64_t>({lengths.size() + more_sequences, documents.size() + more_documents}) +
           Bytes(lengths) + Bytes(pointers) + Bytes(documents) + modes;
  }
};

class TokenStreamTest : public testing::Test {
 protected:
  void Refused(const std::string& name, const testing::Matcher<std::string>& message) {
    ExpectRefused([&] { TokenStream::OpenTokens(folder_ / name); }, ExitCode::kBadInput,
                  AllOf(HasSubstr(folder_ / name.substr(0, name.find('.'))), message));
  }

  TempDir folder_;
};

TEST_F(TokenStreamTest, ReadsNanoGptAsUint16WithoutHeader) {
  const std::string path = folder_.Write("train.bin", Bytes<uint16_t>({1, 50256, 65535, 4}));
  const TokenStream stream = TokenStream::OpenTokens(path);
  EXPECT_EQ(stream.size(), 4);
  EXPECT_THAT(All(stream, 65536), ElementsAre(1, 50256, 65535, 4));
  folder_.Write("odd.bin", "abc");
  Refused("odd.bin", AllOf(HasSubstr("3 bytes"), HasSubstr("data.type text")));
  EXPECT_EQ(TokenStream::OpenTokens(folder_.Write("empty.bin", "")).size(), 0);
}

TEST_F(TokenStreamTest, RefusesTextAsTokenIds) {
  const std::string ascii = "It was the best of times, it was the worst of times.\r\n";
  const std::string utf8 =
      "\xEF\xBB\xBF"
      "Caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x8E\x89\tend of the line\n";
  const std::string utf16("\xFF\xFEI\0t\0 \0w\0a\0s\0 \0t\0h\0e\0", 22);
  for (const std::string& text : {ascii, ascii + ".", utf8, utf16}) {
    folder_.Write("story.txt", text);
    Refused("story.txt", HasSubstr("is text, not token ids; set data.type text"));
  }
  // The chunk that is examined ends within a character.
  folder_.Write("long.txt", std::string(4095, 'a') + "\xC3\xA9" + std::string(99, 'b'));
  Refused("long.txt", HasSubstr("is text, not token ids"));
}

TEST_F(TokenStreamTest, TakesTokenIdsOfAnyVocabulary) {
  std::mt19937 random(7);
  for (const uint32_t vocabulary : {2u, 65u, 256u, 8000u, 50257u, 65536u}) {
    std::vector<uint16_t> tokens(512);
    for (uint16_t& token : tokens) token = static_cast<uint16_t>(random() % vocabulary);
    EXPECT_EQ(TokenStream::OpenTokens(folder_.Write("train.bin", Bytes(tokens))).size(), 512);
  }
}

TEST_F(TokenStreamTest, ReadsTypeFromLlmcHeader) {
  EXPECT_THAT(All(TokenStream::OpenTokens(folder_.Write(
                  "gpt2.bin", LlmcHeader(20240520, 1, 3) + Bytes<uint16_t>({7, 8, 50256})))),
              ElementsAre(7, 8, 50256));
  EXPECT_THAT(All(TokenStream::OpenTokens(folder_.Write(
                      "llama3.bin", LlmcHeader(20240801, 7, 2) + Bytes<uint32_t>({128000, 3}))),
                  128256),
              ElementsAre(128000, 3));
}

TEST_F(TokenStreamTest, RefusesTruncatedLlmcFile) {
  const std::string tokens = Bytes<uint16_t>({1, 2, 3});
  folder_.Write("a.bin", LlmcHeader(20240520, 2, 3) + tokens);
  Refused("a.bin", HasSubstr("version 2; version 1 is required"));
  for (const int32_t promised : {-1, 0, 2, 4, INT32_MAX}) {
    folder_.Write("a.bin", LlmcHeader(20240520, 1, promised) + tokens);
    Refused("a.bin", AllOf(HasSubstr("declares " + std::to_string(promised) + " tokens"),
                           HasSubstr("gives 3")));
  }
  folder_.Write("a.bin", LlmcHeader(20240520, 1, 3) + tokens + "x");
  Refused("a.bin", HasSubstr("declares 3"));
  folder_.Write("a.bin", LlmcHeader(20240801, 7, 1) + tokens);
  Refused("a.bin", HasSubstr("declares 1"));
}

TEST_F(TokenStreamTest, ReadsMegatronSequencesInIndexOrder) {
  folder_.Write("a.bin", Bytes<uint16_t>({1, 2, 3, 4, 5, 6}));
  folder_.Write("a.idx",
                Index{.lengths = {2, 1, 3}, .pointers = {8, 0, 2}, .documents = {0, 2, 3}}.Write());
  for (const char* name : {"a.bin", "a.idx", "a"}) {
    const TokenStream stream = TokenStream::OpenTokens(folder_ / name);
    EXPECT_THAT(All(stream), ElementsAre(5, 6, 1, 2, 3, 4));
    std::vector<int64_t> part(3);
    stream.Read(1, part, kVocab);
    EXPECT_THAT(part, ElementsAre(6, 1, 2)) << "across two borders";
    stream.Read(2, part, kVocab);
    EXPECT_THAT(part, ElementsAre(1, 2, 3)) << "from a border on";
  }
}

TEST_F(TokenStreamTest, ReadsMegatronTypes) {
  const auto read = [&](char type, const std::string& data) {
    folder_.Write("a.bin", data);
    folder_.Write("a.idx", Index{.type = type,
                                 .lengths = {0, 2},
                                 .pointers = {0, 0},
                                 .documents = {0, 1, 2},
                                 .modes = "mm"}
                               .Write());
    return All(TokenStream::OpenTokens(folder_ / "a"), INT64_MAX);
  };
  EXPECT_THAT(read(1, Bytes<uint8_t>({200, 2})), ElementsAre(200, 2));
  EXPECT_THAT(read(4, Bytes<int32_t>({100000, 2})), ElementsAre(100000, 2));
  EXPECT_THAT(read(5, Bytes<int64_t>({int64_t{1} << 40, 2})), ElementsAre(int64_t{1} << 40, 2));
  ExpectRefused([&] { read(7, std::string(8, 0)); }, ExitCode::kBadInput,
                AllOf(HasSubstr("a.idx"), HasSubstr("type 7")));
}

TEST_F(TokenStreamTest, RefusesMegatronIndexBeyondItsData) {
  folder_.Write("a.bin", Bytes<uint16_t>({1, 2, 3, 4, 5, 6}));
  const Index good{.lengths = {2, 4}, .pointers = {0, 4}, .documents = {0, 1, 2}};
  const auto refused = [&](const Index& index, const std::string& words) {
    folder_.Write("a.idx", index.Write());
    Refused("a.bin", HasSubstr(words));
  };
  const auto changed = [&](auto change) {
    Index index = good;
    change(index);
    return index;
  };
  refused(changed([](Index& i) { i.version = 2; }), "version 2; version 1 is required");
  refused(changed([](Index& i) { i.lengths[1] = 5; }), "sequence 1, 5 tokens from byte 4");
  refused(changed([](Index& i) { i.lengths[0] = -1; }), "sequence 0, -1 tokens");
  refused(changed([](Index& i) { i.lengths[0] = INT32_MAX; }), "is not in");
  refused(changed([](Index& i) { i.pointers[1] = 6; }), "is not in");
  refused(changed([](Index& i) { i.pointers[1] = -4; }), "from byte -4");
  refused(changed([](Index& i) { i.pointers[1] = INT64_MAX; }), "is not in");
  refused(changed([](Index& i) { i.pointers[1] = INT64_MIN; }), "is not in");
  refused(changed([](Index& i) { i.documents = {0, 2, 1}; }), "document boundary 2 is 1");
  refused(changed([](Index& i) { i.documents = {0, 1, 3}; }), "document boundary 2 is 3");
  refused(changed([](Index& i) { i.documents = {1, 1, 2}; }), "document boundary 0 is 1");
  refused(changed([](Index& i) { i.documents = {0, 1, 1}; }), "end at sequence 1 of 2");
  refused(changed([](Index& i) { i.documents = {}; }), "end at sequence 0 of 2");
  refused(changed([](Index& i) { i.more_sequences = 1; }), "declares 3 sequences");
  refused(changed([](Index& i) { i.more_documents = 1; }), "declares 2 sequences and 4 documents");
  refused(changed([](Index& i) { i.more_sequences = UINT64_MAX - 2; }), "declares");
  refused(changed([](Index& i) { i.more_sequences = uint64_t{1} << 62; }), "declares");
  refused(changed([](Index& i) { i.more_documents = uint64_t{1} << 61; }), "declares");
  refused(changed([](Index& i) { i.modes = "m"; }), "has 1 extra bytes");
  const std::string whole = good.Write();
  for (const size_t size : {size_t{0}, size_t{8}, size_t{33}}) {
    folder_.Write("a.idx", whole.substr(0, size));
    Refused("a.bin", HasSubstr("not the index of a Megatron data set"));
  }
  folder_.Write("a.idx", whole.substr(0, whole.size() - 1));
  Refused("a.bin", HasSubstr("ends before them"));
  folder_.Write("a.idx", whole);
  std::filesystem::remove(folder_ / "a.bin");
  Refused("a.idx", HasSubstr("a.bin: cannot be read"));
}

TEST_F(TokenStreamTest, ReadsTextAsBytes) {
  EXPECT_THAT(All(TokenStream::OpenText(folder_.Write("text", "A\n\xFF"))),
              ElementsAre('A', '\n', 255));
  EXPECT_EQ(TokenStream::OpenText(folder_.Write("empty", "")).size(), 0);
  ExpectRefused([&] { TokenStream::OpenText(folder_ / "absent"); }, ExitCode::kBadInput,
                HasSubstr("absent"));
  ExpectRefused([&] { TokenStream::OpenText(folder_.path()); }, ExitCode::kBadInput,
                HasSubstr("is not a file"));
}

TEST_F(TokenStreamTest, ReadFindsTokenAboveVocabulary) {
  const std::string path = folder_.Write("train.bin", Bytes<uint16_t>({1, 2, 300, 4}));
  const TokenStream stream = TokenStream::OpenTokens(path);
  std::vector<int64_t> two(2);
  stream.Read(0, two, 256);
  ExpectRefused(
      [&] { stream.Read(1, two, 256); }, ExitCode::kBadInput,
      AllOf(HasSubstr(path), HasSubstr("token 2 is 300"), HasSubstr("model.vocab_size - 1, 255")));
  stream.Read(1, two, 301);
  ExpectRefused([&] { stream.Read(1, two, 300); }, ExitCode::kBadInput, HasSubstr("is 300"));

  folder_.Write("a.bin", Bytes<int32_t>({3, -5}));
  folder_.Write("a.idx",
                Index{.type = 4, .lengths = {2}, .pointers = {0}, .documents = {0, 1}}.Write());
  ExpectRefused([&] { All(TokenStream::OpenTokens(folder_ / "a")); }, ExitCode::kBadInput,
                HasSubstr("token 1 is -5"));
}

TEST_F(TokenStreamTest, RefusesToReadBeyondEnd) {
  const TokenStream stream =
      TokenStream::OpenTokens(folder_.Write("train.bin", Bytes<uint16_t>({1, 2, 3})));
  std::vector<int64_t> two(2);
  EXPECT_THROW(stream.Read(2, two, kVocab), std::out_of_range);
  EXPECT_THROW(stream.Read(-1, two, kVocab), std::out_of_range);
  EXPECT_THROW(stream.Read(INT64_MAX, two, kVocab), std::out_of_range);
  stream.Read(1, two, kVocab);
  EXPECT_THAT(two, ElementsAre(2, 3));
}

// Every file that is accepted must be readable to its end.
TEST_F(TokenStreamTest, ReadsOrRefusesChangedFiles) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<uint16_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  const std::string llmc = LlmcHeader(20240520, 1, 100) + Bytes(tokens);
  const std::string index =
      Index{.lengths = {40, 10, 50}, .pointers = {0, 180, 80}, .documents = {0, 1, 3}}.Write();
  folder_.Write("m.bin", Bytes(tokens));
  int read = 0;
  for (int round = 0; round < 400; ++round) {
    const bool megatron = random() % 2 == 0;
    std::string bytes = megatron ? index : llmc;
    const size_t header = megatron ? bytes.size() : 12;
    for (unsigned changes = 1 + random() % 3; changes-- > 0;) {
      bytes[random() % header] = static_cast<char>(random() % 4 == 0 ? random() : random() % 8);
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    folder_.Write(megatron ? "m.idx" : "l.bin", bytes);
    try {
      All(TokenStream::OpenTokens(folder_ / (megatron ? "m.bin" : "l.bin")), INT64_MAX);
      ++read;
    } catch (const TrainError& error) {
      ASSERT_EQ(error.code(), ExitCode::kBadInput);
      ASSERT_THAT(std::string(error.what()), HasSubstr(folder_.path()));
    }
  }
  EXPECT_GT(read, 0) << "the changes leave no file that can be read";
}

TEST(TokensPerSampleTest, ReturnsBlockSizeOrElsePositionsOfModel) {
  const DataNeeds tokens = {.vocabulary = 100, .positions = 64};
  DataConfig data;
  data.type = DataConfig::Type::kTokens;
  EXPECT_EQ(TokensPerSample(data, tokens), 64);
  data.block_size = 32;
  EXPECT_EQ(TokensPerSample(data, tokens), 32);
  EXPECT_EQ(TokensPerSample(data, {}), 32);
  data.type = DataConfig::Type::kCsv;
  EXPECT_EQ(TokensPerSample(data, {.classes = 10}), 0);
}

}  // namespace
}  // namespace dslaunch::token_stream_test
