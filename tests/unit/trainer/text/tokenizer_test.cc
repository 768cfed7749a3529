#include "trainer/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"
#include "trainer/base/train_error.h"

namespace dslaunch::text_tokenizer_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns a small tokenizer.json. tests/trainer/text/tokenizer_test.py compares whole tokenizers
// with the tokenizers package.
json SomeTokenizer() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 5, "content": "<e>", "special": true, "normalized": false,
                      "single_word": false, "lstrip": false, "rstrip": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": true},
    "post_processor": {"type": "ByteLevel"},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "unk_token": null, "continuing_subword_prefix": "",
              "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4},
              "merges": ["a b", ["Ġ", "ab"]]}})");
}

Tokenizer Make(const json& file) { return Tokenizer(ReadTokenizerJson(file, "t.json")); }

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  TokenEncoder(tokenizer).EncodeDocument(text, ids);
  return ids;
}

TEST(TokenizerTest, MergesWordsAndFindsAddedTokens) {
  const Tokenizer tokenizer = Make(SomeTokenizer());
  EXPECT_THAT(Encode(tokenizer, "ab ab<e>  ba"), ElementsAre(3, 4, 5, 1, 0));
  EXPECT_THAT(Encode(tokenizer, ""), IsEmpty());
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.IdOf("<e>"), 5);
  EXPECT_EQ(tokenizer.IdOf("<f>"), std::nullopt);
  const std::vector<int32_t> ids = {3, 4, 5, 99, -1, 1};
  EXPECT_EQ(tokenizer.Decode(ids), "ab ab<e>b");
  EXPECT_EQ(tokenizer.Decode(ids, /*skip_special=*/true), "ab abb");
}

TEST(TokenizerTest, MergesLongWordLikeShortOne) {
  const Tokenizer tokenizer = Make(SomeTokenizer());
  std::string word;
  std::vector<int32_t> wanted;
  for (int i = 0; i < 5000; ++i) {
    word += "abb";
    wanted.insert(wanted.end(), {3, 1});
  }
  EXPECT_EQ(Encode(tokenizer, word), wanted);
}

TEST(TokenizerTest, AddsTokensOfTemplate) {
  json file = SomeTokenizer();
  file["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel"},
    {"type": "TemplateProcessing",
     "single": [{"SpecialToken": {"id": "<e>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "b", "type_id": 0}}],
     "pair": [], "special_tokens": {"<e>": {"id": "<e>", "ids": [5], "tokens": ["<e>"]},
                                    "b": {"id": "b", "ids": [1, 1], "tokens": ["b", "b"]}}}]})");
  EXPECT_THAT(Encode(Make(file), "a"), ElementsAre(5, 0, 1, 1));
}

TEST(TokenizerTest, RefusesUnsupportedStepsByName) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/model/type", R"("Unigram")", "model.type is 'Unigram'; only BPE is supported"},
      {"/model/dropout", "0.1", "model.dropout is not supported"},
      {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix is not supported"},
      {"/model/unk_token", R"("<unk>")", "which the vocabulary lacks"},
      {"/model/vocab/c", "0", "the number of another token"},
      {"/model/vocab/c", "-1", "a number that is not from 0 to 16777215"},
      {"/model/vocab/c", "20000000", "a number that is not from 0 to 16777215"},
      {"/model/vocab/ab", "16777215", "has 6 tokens with numbers up to 16777215; most numbers"},
      {"/model/merges/0", R"("a c")", "model.merges[0] needs the token 'c'"},
      {"/model/merges/0", R"("a b c")", "model.merges[0] is not a pair of tokens"},
      {"/model/merges/0", R"("b a")", "needs the token 'ba'"},
      {"/normalizer", R"({"type": "Lowercase"})", "normalizer.type is 'Lowercase'; supported: NFC"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", "pre_tokenizer.type is 'Whitespace'"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "Isolated", "invert": false})",
       "pre_tokenizer.pattern cannot be used: the pattern '\\d' has an escape"},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
       "follows ByteLevel, which must be the last"},
      {"/decoder", R"({"type": "WordPiece"})", "decoder.type is 'WordPiece'"},
      {"/post_processor", R"({"type": "BertProcessing"})", "post_processor.type"},
      {"/added_tokens/0/single_word", "true",
       "added_tokens[0].single_word is true, which is not supported"},
      {"/added_tokens/0/id", "9", "'<e>' has the number 5 for the tokenizers package"},
      {"/extra", "1", "extra"},
  };
  for (const auto& [place, value, problem] : cases) {
    SCOPED_TRACE(std::string(place) + " " + value);
    json file = SomeTokenizer();
    file[json::json_pointer(place)] = json::parse(value);
    ExpectRefused([&] { Make(file); }, ExitCode::kBadInput, HasSubstr(problem));
  }
}

TEST(TokenizerTest, NamesMissingFile) {
  const TempDir folder;
  ExpectRefused([&] { Tokenizer::Read(folder.path()); }, ExitCode::kBadInput,
                HasSubstr("tokenizer.json: cannot be read"));
}

}  // namespace
}  // namespace dslaunch::text_tokenizer_test
