#include "cli/top/view_keys.h"

#include <gtest/gtest.h>

namespace dslaunch::view_keys_test {
namespace {

constexpr size_t kPage = 24;

class ViewKeysTest : public ::testing::Test {
 protected:
  TopAction Press(TopKey key) { return OnKey(view_, key, table_, kPage); }

  TopView view_;
  std::vector<TopRow> table_ = {{.label = "node0", .ranks = {0, 1}, .node = 0, .is_node = true},
                                {.label = "rank 1", .ranks = {1}, .node = 0},
                                {.label = "9 nodes", .ranks = {}, .node = {}, .is_node = true}};
};

TEST_F(ViewKeysTest, MovesWithinTable) {
  Press(TopKey::kUp);
  EXPECT_EQ(view_.cursor, 0u);
  Press(TopKey::kDown);
  EXPECT_EQ(view_.cursor, 1u);
  Press(TopKey::kPageDown);
  EXPECT_EQ(view_.cursor, 2u);
  Press(TopKey::kDown);
  EXPECT_EQ(view_.cursor, 2u);
  Press(TopKey::kPageUp);
  EXPECT_EQ(view_.cursor, 0u);
}

TEST_F(ViewKeysTest, KeepsCursorInTableThatShrank) {
  view_.cursor = 7;
  Press(TopKey::kOther);
  EXPECT_EQ(view_.cursor, 2u);
  table_.clear();
  for (const TopKey key : {TopKey::kDown, TopKey::kOpen, TopKey::kLog, TopKey::kStacks})
    EXPECT_EQ(Press(key), TopAction::kNone);
  EXPECT_EQ(view_.cursor, 0u);
}

TEST_F(ViewKeysTest, StopsOnlyAfterConfirmation) {
  EXPECT_EQ(Press(TopKey::kYes), TopAction::kNone);
  EXPECT_EQ(Press(TopKey::kStop), TopAction::kNone);
  EXPECT_TRUE(view_.asks_to_stop);
  EXPECT_EQ(Press(TopKey::kOpen), TopAction::kNone);
  EXPECT_FALSE(view_.asks_to_stop);
  EXPECT_EQ(Press(TopKey::kYes), TopAction::kNone);
  Press(TopKey::kStop);
  EXPECT_EQ(Press(TopKey::kYes), TopAction::kStopJob);
}

TEST_F(ViewKeysTest, OpensAndClosesNodes) {
  Press(TopKey::kOpen);
  EXPECT_TRUE(view_.open_nodes.contains(0));
  Press(TopKey::kOpen);
  EXPECT_FALSE(view_.open_nodes.contains(0));
  view_.cursor = 2;
  Press(TopKey::kOpen);
  EXPECT_TRUE(view_.all_nodes);
  EXPECT_EQ(Press(TopKey::kLeave), TopAction::kNone);
  EXPECT_FALSE(view_.all_nodes);
  EXPECT_EQ(Press(TopKey::kLeave), TopAction::kLeave);
}

TEST_F(ViewKeysTest, ReadsStacksAndLogOfRowsWithRanks) {
  EXPECT_EQ(Press(TopKey::kStacks), TopAction::kReadStacks);
  EXPECT_EQ(Press(TopKey::kLog), TopAction::kFollowLog);
  view_.cursor = 2;
  EXPECT_EQ(Press(TopKey::kStacks), TopAction::kNone);
}

TEST_F(ViewKeysTest, GoesThroughAllSorts) {
  for (int i = 0; i < 5; ++i) {
    Press(TopKey::kSort);
    EXPECT_NE(view_.sort, TopSort::kRank);
  }
  Press(TopKey::kSort);
  EXPECT_EQ(view_.sort, TopSort::kRank);
}

TEST_F(ViewKeysTest, ScrollsTextAndFollowsItsEnd) {
  ShowText(view_, "output", {});
  for (int i = 0; i < 100; ++i) AppendText(view_, std::to_string(i), kPage);
  EXPECT_EQ(view_.text_at, 100 - (kPage - 2));
  Press(TopKey::kUp);
  const size_t at = view_.text_at;
  AppendText(view_, "more", kPage);
  EXPECT_EQ(view_.text_at, at);
  for (size_t i = 0; i < kMostTextLines; ++i) AppendText(view_, "x", kPage);
  EXPECT_EQ(view_.text.size(), kMostTextLines);
  EXPECT_EQ(Press(TopKey::kLeave), TopAction::kCloseText);
  EXPECT_EQ(view_.mode, TopView::Mode::kTable);
}

TEST_F(ViewKeysTest, EscapeClosesTextButDoesNotLeave) {
  ShowText(view_, "output", {"line"});
  EXPECT_EQ(Press(TopKey::kBack), TopAction::kCloseText);
  EXPECT_EQ(Press(TopKey::kBack), TopAction::kNone);
}

TEST_F(ViewKeysTest, AnyUsualKeyClosesHelp) {
  Press(TopKey::kHelp);
  EXPECT_EQ(view_.mode, TopView::Mode::kHelp);
  EXPECT_EQ(Press(TopKey::kLeave), TopAction::kNone);
  EXPECT_EQ(view_.mode, TopView::Mode::kTable);
}

}  // namespace
}  // namespace dslaunch::view_keys_test
