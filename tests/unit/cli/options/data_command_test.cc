#include "cli/options/data_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::data_command_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DataCommandTest, PassesInputsAndOptionsToTrainer) {
  const auto command = ParseDataCommand({"data", "prepare", "a.txt", "--tokenizer", "t", "b.jsonl",
                                         "-o", "out", "--key=body", "--threads", "3", "--force"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_THAT(command->words,
              ElementsAre("prepare", "--tokenizer", "t", "--output", "out", "--key", "body",
                          "--threads", "3", "--force", "--", "a.txt", "b.jsonl"));
  const auto least = ParseDataCommand(
      {"data", "prepare", "--tokenizer", "t", "--output", "o", "--", "-a", "--force"});
  ASSERT_TRUE(least.ok()) << least.error().message;
  EXPECT_THAT(least->words,
              ElementsAre("prepare", "--tokenizer", "t", "--output", "o", "--", "-a", "--force"));
}

TEST(DataCommandTest, PrintsHelp) {
  const auto help = ParseDataCommand({"data", "prepare", "--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_THAT(help->help, HasSubstr("dslaunch data prepare IN... [options]"));
}

TEST(DataCommandTest, NamesMistakeAndHint) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"data"}, "Give prepare"},
      {{"data", "prepare", "--tokenizer", "t", "-o", "o"}, "data prepare: which files?"},
      {{"data", "prepare", "a", "-o", "o"}, "which tokenizer? Give its folder with --tokenizer"},
      {{"data", "prepare", "a", "--tokenizer", "t"}, "where to? Give --output PREFIX"},
      {{"data", "prepare", "a", "--threads", "0"}, "--threads"},
      {{"data", "prepare", "", "--tokenizer", "t", "-o", "o"}, "not empty"},
  };
  for (const auto& [words, problem] : cases) {
    const auto command = ParseDataCommand(words);
    ASSERT_FALSE(command.ok()) << problem;
    EXPECT_EQ(command.error().code, ExitCode::kUsage);
    EXPECT_THAT(command.error().message, HasSubstr(problem));
    EXPECT_THAT(command.error().message, HasSubstr("dslaunch data --help"));
  }
}

}  // namespace
}  // namespace dslaunch::data_command_test
