#include "trainer/parallel/zero/access_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::access_trace_test {
namespace {

using testing::ElementsAre;

void Pass(AccessTrace& order, const std::vector<size_t>& units) {
  order.Begin();
  for (const size_t unit : units) order.Use(unit);
  order.End();
}

TEST(AccessTrace, ExpectsNothingInFirstPass) {
  AccessTrace order({10, 20});
  order.Begin();
  EXPECT_FALSE(order.followed());
  order.Use(1);
  EXPECT_FALSE(order.followed());
  order.End();
  order.Begin();
  EXPECT_TRUE(order.followed());
  EXPECT_THAT(order.expected(), ElementsAre(1));
}

TEST(AccessTrace, PredictsNextUses) {
  AccessTrace order({10, 20, 40, 80});
  Pass(order, {0, 1, 1, 2, 1, 0});
  order.Begin();
  EXPECT_EQ(order.NextUse(2), 3);
  EXPECT_EQ(order.ElementsUntilNextUse(0), 0);
  EXPECT_EQ(order.ElementsUntilNextUse(2), 10 + 20) << "two reads in a row count once";
  order.Use(0);
  EXPECT_EQ(order.place(), 1);
  EXPECT_EQ(order.NextUse(0), 5);
  EXPECT_EQ(order.ElementsUntilNextUse(0), 20 + 40 + 20);
  order.Use(1);
  EXPECT_EQ(order.ElementsUntilNextUse(1), 0);
  order.Use(1);
  EXPECT_EQ(order.ElementsUntilNextUse(1), 40);
  EXPECT_EQ(order.NextUse(3), AccessTrace::kNever);
  EXPECT_EQ(order.ElementsUntilNextUse(3), AccessTrace::kNever);
  for (const size_t unit : {2, 1, 0}) order.Use(unit);
  EXPECT_TRUE(order.followed());
  EXPECT_EQ(order.ElementsUntilNextUse(0), AccessTrace::kNever);
}

TEST(AccessTrace, ExpectsChangedOrderInNextPass) {
  AccessTrace order({1, 1, 1});
  Pass(order, {0, 1, 2});
  order.Begin();
  order.Use(0);
  EXPECT_TRUE(order.followed());
  order.Use(2);
  EXPECT_FALSE(order.followed());
  order.Use(1);
  EXPECT_FALSE(order.followed());
  order.End();
  order.Begin();
  EXPECT_TRUE(order.followed());
  EXPECT_THAT(order.expected(), ElementsAre(0, 2, 1));
  EXPECT_EQ(order.NextUse(1), 2);
}

TEST(AccessTrace, AcceptsShorterAndLongerPasses) {
  AccessTrace order({1, 1, 1});
  Pass(order, {0, 1});
  order.Begin();
  for (const size_t unit : {0, 1}) order.Use(unit);
  EXPECT_TRUE(order.followed());
  order.Use(2);
  EXPECT_FALSE(order.followed());
  order.End();
  Pass(order, {0});
  EXPECT_THAT(order.expected(), ElementsAre(0));
}

TEST(AccessTrace, AcceptsUnitsAddedDuringPass) {
  AccessTrace order({10});
  order.Begin();
  order.Use(0);
  order.AddUnit(20);
  order.Use(1);
  order.Use(0);
  order.End();
  order.Begin();
  EXPECT_EQ(order.NextUse(1), 1);
  order.Use(0);
  EXPECT_EQ(order.ElementsUntilNextUse(0), 20);
}

}  // namespace
}  // namespace dslaunch::access_trace_test
