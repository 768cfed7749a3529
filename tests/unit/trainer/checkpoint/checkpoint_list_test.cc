#include "trainer/checkpoint/checkpoint_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/trainer/checkpoint/sample_manifest.h"

namespace dslaunch::checkpoint_list_test {
namespace {

using testing::HasSubstr;

// Returns whether `text` contains control characters other than line feeds.
bool HasControl(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
  });
}

TEST(CheckpointListTest, RemovesControlCharactersFromNames) {
  const std::string escape = "\x1b]0;title\x07", reversed = "\u202e";
  const std::vector<ListedCheckpoint> list = {
      {"good" + escape + reversed + "\nforged line", "", true, SampleManifest()},
      {"bad" + escape, "manifest.json: tensor " + escape + reversed + " \n is wrong", false, {}}};
  const std::string table = CheckpointTable(list);
  EXPECT_FALSE(HasControl(table)) << table;
  EXPECT_EQ(table.find(reversed), std::string::npos);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3) << table;
  EXPECT_THAT(table, HasSubstr("good"));
  EXPECT_THAT(table, HasSubstr("damaged: manifest.json: tensor "));
  const std::string json = CheckpointsJson(list);
  EXPECT_FALSE(HasControl(json)) << json;
  EXPECT_EQ(json.find(reversed), std::string::npos);
}

}  // namespace
}  // namespace dslaunch::checkpoint_list_test
