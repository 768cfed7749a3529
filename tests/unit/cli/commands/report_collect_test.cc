#include "cli/commands/report_collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::report_collect_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

pb::RankFilePart Part(uint32_t rank, pb::RankFilePart::Kind kind, const std::string& data) {
  pb::RankFilePart part;
  part.set_attempt(1);
  part.set_rank(rank);
  part.set_kind(kind);
  part.set_data(data);
  return part;
}

pb::RankFilePart End() {
  pb::RankFilePart part;
  part.set_end(true);
  return part;
}

TEST(RankFilePartsTest, AssemblesFilesByRank) {
  RankFileParts parts("node1", 1000);
  EXPECT_TRUE(parts.Add(Part(1, pb::RankFilePart::METRICS, "")));
  EXPECT_TRUE(parts.Add(Part(1, pb::RankFilePart::METRICS, "{\"step\":1,")));
  EXPECT_TRUE(parts.Add(Part(1, pb::RankFilePart::METRICS, "\"loss\":2}\n")));
  EXPECT_TRUE(parts.Add(Part(0, pb::RankFilePart::RUN, "{\"model\":\"gpt2\"}")));
  EXPECT_TRUE(parts.Add(Part(0, pb::RankFilePart::METRICS, "{\"step\":7}\n")));
  EXPECT_FALSE(parts.complete());
  EXPECT_TRUE(parts.Add(End()));
  EXPECT_TRUE(parts.complete());
  const RankFileParts::Files files = parts.Finish();
  ASSERT_EQ(files.ranks.size(), 2u);
  EXPECT_EQ(files.ranks[0].run->model, "gpt2");
  EXPECT_EQ(files.ranks[0].metrics->points.at(0).step, 7);
  EXPECT_EQ(files.ranks[1].rank, 1u);
  EXPECT_EQ(files.ranks[1].node, "node1");
  EXPECT_EQ(files.ranks[1].metrics->points.at(0).loss, 2);
  EXPECT_THAT(files.troubles, IsEmpty());
}

TEST(RankFilePartsTest, StopsReadingNodeThatSendsTooMuch) {
  RankFileParts parts("node1", 20);
  EXPECT_TRUE(parts.Add(Part(0, pb::RankFilePart::METRICS, "{\"step\":7}\n")));
  EXPECT_FALSE(parts.Add(Part(0, pb::RankFilePart::METRICS, "{\"step\":8}\n")));
  EXPECT_FALSE(parts.Add(Part(0, pb::RankFilePart::METRICS, "")));
  const RankFileParts::Files files = parts.Finish();
  EXPECT_EQ(files.ranks.at(0).metrics->points.size(), 1u) << "the data received before is kept";
  EXPECT_THAT(files.troubles, ElementsAre(HasSubstr("node1: it sent more than requested")));
}

TEST(RankFilePartsTest, ReportsMissingData) {
  RankFileParts parts("node1", 1000);
  pb::RankFilePart thinned = Part(0, pb::RankFilePart::METRICS, "{\"step\":7}\n");
  thinned.set_incomplete(true);
  parts.Add(thinned);
  pb::RankFilePart large = Part(0, pb::RankFilePart::PROFILE, "");
  large.set_incomplete(true);
  parts.Add(large);
  EXPECT_THAT(parts.Finish().troubles,
              ElementsAre(HasSubstr("the metrics of 1 rank are long"),
                          HasSubstr("1 file could not"), HasSubstr("the connection broke")));
}

}  // namespace
}  // namespace dslaunch::report_collect_test
