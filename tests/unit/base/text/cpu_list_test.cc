#include "base/text/cpu_list.h"

#include <gtest/gtest.h>

namespace dslaunch::cpu_list_test {
namespace {

TEST(CpuListTest, ReadsNumbersAndRanges) {
  const std::pair<const char*, std::vector<int>> good[] = {
      {"0", {0}}, {"1,3-5", {1, 3, 4, 5}}, {"0-0", {0}}, {"0-1,4-5,127", {0, 1, 4, 5, 127}}};
  for (const auto& [text, cpus] : good) {
    const auto list = ParseCpuList(text);
    ASSERT_TRUE(list.ok()) << text << ": " << list.error().message;
    EXPECT_EQ(*list, cpus) << text;
  }
}

TEST(CpuListTest, RejectsMalformedListsAndNamesThePart) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "''"},           {"1,", "''"},     {"a", "'a'"},   {"5-3", "'5-3'"},
      {"3,1", "'1'"},       {"1-4,4", "'4'"}, {"1,1", "'1'"}, {"1 ,2", "'1 '"},
      {"1-2-3", "'1-2-3'"}, {"-1", "'-1'"},   {"1-", "'1-'"}, {"99999999", "'99999999'"},
      {"0x1", "'0x1'"}};
  for (const auto& [text, part] : bad) {
    const auto list = ParseCpuList(text);
    ASSERT_FALSE(list.ok()) << text;
    EXPECT_EQ(list.error().code, ExitCode::kUsage);
    EXPECT_NE(list.error().message.find(part), std::string::npos) << list.error().message;
  }
}

TEST(CpuListTest, WritesTheShortestList) {
  EXPECT_EQ(CpuListText({}), "");
  EXPECT_EQ(CpuListText({7}), "7");
  EXPECT_EQ(CpuListText({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace dslaunch::cpu_list_test
