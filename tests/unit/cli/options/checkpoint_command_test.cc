#include "cli/options/checkpoint_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::checkpoint_command_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Words(std::vector<std::string> words) {
  words.insert(words.begin(), "checkpoint");
  const auto command = ParseCheckpointCommand(words);
  EXPECT_TRUE(command.ok()) << command.error().message;
  return command.ok() ? command->words : std::vector<std::string>();
}

TEST(CheckpointCommandTest, PassesActionPathsAndOptionsToTrainer) {
  EXPECT_THAT(Words({"ls", "d"}), ElementsAre("ls", "d"));
  EXPECT_THAT(Words({"ls", "--json", "d"}), ElementsAre("ls", "d", "--json"));
  EXPECT_THAT(Words({"verify", "d/step_000001"}), ElementsAre("verify", "d/step_000001"));
  EXPECT_THAT(Words({"export", "a", "b"}), ElementsAre("export", "a", "b"));
  EXPECT_THAT(Words({"export", "--dtype=fp16", "a", "b"}),
              ElementsAre("export", "a", "b", "--dtype", "fp16"));
  EXPECT_THAT(Words({"export", "a", "b", "--force"}), ElementsAre("export", "a", "b", "--force"));
  EXPECT_THAT(Words({"ls", "--", "-d"}), ElementsAre("ls", "-d"));
  EXPECT_THAT(Words({"diff", "a", "b", "--json"}), ElementsAre("diff", "a", "b", "--json"));
  EXPECT_THAT(Words({"convert", "a", "b"}), ElementsAre("convert", "a", "b"));
  EXPECT_THAT(
      Words({"convert", "a", "b", "--force", "--key", "k", "--prefix", "p.", "--to", "dslaunch"}),
      ElementsAre("convert", "a", "b", "--to", "dslaunch", "--prefix", "p.", "--key", "k",
                  "--force"));
}

TEST(CheckpointCommandTest, PrintsHelpOfFamilyAndOfAction) {
  const auto family = ParseCheckpointCommand({"checkpoint", "--help"});
  const auto one = ParseCheckpointCommand({"checkpoint", "export", "-h"});
  ASSERT_TRUE(family.ok() && one.ok());
  EXPECT_THAT(family->help, HasSubstr("dslaunch checkpoint verify"));
  EXPECT_THAT(one->help, testing::Not(HasSubstr("dslaunch checkpoint verify")));
  EXPECT_THAT(one->help, HasSubstr("\nExamples\n  dslaunch checkpoint export"));
}

TEST(CheckpointCommandTest, NamesMistakeAndHint) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "Give ls, verify, export, convert or diff"},
      {{"diff", "a"}, "diff: compared with which?"},
      {{"convert", "a"}, "convert: where to?"},
      {{"convert", "a", "b", "--to", "universal"}, "not 'universal'"},
      {{"verify", "a", "--key", "k"}, "option '--key' belongs to 'checkpoint convert'"},
      {{"verfy", "d"}, "no 'verfy', did you mean verify?"},
      {{"ls"}, "ls: which folder?"},
      {{"verify"}, "verify: which checkpoint?"},
      {{"export", "a"}, "export: where to?"},
      {{"ls", "a", "b"}, "ls takes no further argument 'b'"},
      {{"ls", "--jsn", "a"}, "unknown option '--jsn', did you mean --json?"},
      {{"ls", "--dtype", "bf16", "a"}, "option '--dtype' belongs to 'checkpoint export'"},
      {{"export", "a", "b", "--dtype", "bf61"}, "not 'bf61', did you mean bf16?"},
  };
  for (const auto& [given, said] : cases) {
    std::vector<std::string> words = given;
    words.insert(words.begin(), "checkpoint");
    const auto command = ParseCheckpointCommand(words);
    ASSERT_FALSE(command.ok()) << said;
    EXPECT_EQ(command.error().code, ExitCode::kUsage);
    EXPECT_THAT(command.error().message, HasSubstr(said));
    EXPECT_THAT(command.error().message, HasSubstr("dslaunch checkpoint --help"));
  }
}

}  // namespace
}  // namespace dslaunch::checkpoint_command_test
