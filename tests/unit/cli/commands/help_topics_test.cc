#include "cli/commands/help_topics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/options/help_text.h"
#include "cli/options/option_table.h"

namespace dslaunch::help_topics_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr size_t kWidth = 90;

std::string Text(const std::vector<std::string>& words) {
  const Result<std::string> text = HelpTopicText(words, kWidth);
  return text.ok() ? *text : text.error().message;
}

TEST(HelpTopicsTest, EveryPageHasATopicAndATitle) {
  std::set<std::string_view> topics;
  for (const HelpPage& page : HelpPages()) {
    EXPECT_TRUE(topics.insert(page.topic).second) << page.topic;
    EXPECT_TRUE(page.text.starts_with("# ")) << page.topic;
  }
  EXPECT_TRUE(topics.contains("launching"));
  EXPECT_TRUE(topics.contains("options"));
}

TEST(HelpTopicsTest, CompletionOffersEveryTopic) {
  std::vector<std::string> topics;
  for (const HelpPage& page : HelpPages()) topics.emplace_back(page.topic);
  ASSERT_EQ(CommandsOf("help").size(), 1u);
  EXPECT_EQ(CommandsOf("help")[0]->arguments.at(0).words, topics);
}

TEST(HelpTopicsTest, ListNamesEveryTopic) {
  for (const HelpPage& page : HelpPages())
    EXPECT_THAT(Text({"help"}), HasSubstr("  " + std::string(page.topic) + " "));
  EXPECT_THAT(Text({"help", "--help"}), HasSubstr("dslaunch help [TOPIC]"));
}

TEST(HelpTopicsTest, RendersPagesAsPlainText) {
  for (const HelpPage& page : HelpPages()) {
    const std::string text = Text({"help", std::string(page.topic)});
    EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << page.topic;
    EXPECT_THAT(text, Not(HasSubstr("]("))) << page.topic;
    EXPECT_THAT(text, Not(HasSubstr("| --- |"))) << page.topic;
    EXPECT_GT(text.size(), 500u) << page.topic;
  }
}

TEST(HelpTopicsTest, LinksNameTheTopic) {
  std::string text = Text({"help", "launching"});
  std::ranges::replace(text, '\n', ' ');  // because a link may be broken across lines
  EXPECT_THAT(text, HasSubstr("[dslaunch help training]"));
  EXPECT_THAT(text, HasSubstr("[dslaunch help options]"));
}

TEST(HelpTopicsTest, AcceptsUnderscoresInTopic) {
  EXPECT_EQ(Text({"help", "getting_started"}), Text({"help", "getting-started"}));
}

TEST(HelpTopicsTest, PrintsHelpOfCommand) {
  EXPECT_EQ(Text({"help", "ps"}), CommandHelpText("ps"));
  EXPECT_THAT(Text({"help", "checkpoint"}), HasSubstr("dslaunch checkpoint verify"));
  EXPECT_THAT(Text({"help", "checkpoint", "export"}),
              testing::StartsWith("dslaunch checkpoint export FOLDER OUT"));
  EXPECT_THAT(Text({"help", "checkpoint", "exprot"}), HasSubstr("did you mean export?"));
  EXPECT_THAT(Text({"help", "ps", "now"}), HasSubstr("ps has no actions"));
  EXPECT_THAT(Text({"help", "report"}), HasSubstr("dslaunch report --help")) << "a page too";
}

TEST(HelpTopicsTest, RejectsUnknownTopicWithSuggestion) {
  for (const auto& [topic, said] :
       {std::pair("lanching", "did you mean launching?"),
        std::pair("atach", "did you mean attach?"), std::pair("zzzzzz", "see dslaunch help")}) {
    const Result<std::string> text = HelpTopicText({"help", topic}, kWidth);
    ASSERT_FALSE(text.ok()) << topic;
    EXPECT_EQ(text.error().code, ExitCode::kUsage);
    EXPECT_THAT(text.error().message, HasSubstr(said));
  }
  EXPECT_FALSE(HelpTopicText({"help", "launching", "training"}, kWidth).ok());
}

}  // namespace
}  // namespace dslaunch::help_topics_test
