#include "proto/contract/line_tag.h"

#include <gtest/gtest.h>

namespace dslaunch::line_tag_test {
namespace {

TEST(LineTag, NamesNodeAndRank) { EXPECT_EQ(LineTag({}, "node2", 13, 1), "[node2:13] "); }

TEST(LineTag, ExpandsTemplatesLikePython) {
  const struct {
    std::string tag_template, tag;
  } cases[] = {
      {"[${role_name}-${local_rank}/${rank}]: ", "[trainer-1/13]: "},
      {"$role_name$local_rank|", "trainer1|"},
      {"$rank: $ranks ${rank", "13: $ranks ${rank"},
      {"$$rank costs $5 $", "$rank costs $5 $"},
      {"${host}:${rank}", "${host}:13"},
      {"plain", "plain"},
      {"$$$rank$", "$13$"},
      {"${} ${1}", "${} ${1}"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(LineTag({c.tag_template, "trainer"}, "node2", 13, 1), c.tag) << c.tag_template;
}

TEST(LineTag, DoesNotExpandInsertedValues) {
  EXPECT_EQ(LineTag({"${role_name}:", "$rank"}, "node2", 13, 1), "$rank:");
}

}  // namespace
}  // namespace dslaunch::line_tag_test
