#include "net/pending_connections.h"

#include <gtest/gtest.h>

namespace dslaunch::pending_connections_test {
namespace {

TEST(PendingConnectionsTest, AcceptsUpToItsLimit) {
  PendingConnections room(2);
  EXPECT_EQ(room.Enter(1, "a"), std::nullopt);
  EXPECT_EQ(room.Enter(2, "a"), std::nullopt);
  room.Leave(1, "a");
  EXPECT_EQ(room.Enter(3, "b"), std::nullopt);
  EXPECT_EQ(room.size(), 2u);
}

TEST(PendingConnectionsTest, EvictsOldestOfTheLargestGroup) {
  PendingConnections room(3);
  room.Enter(1, "node");
  room.Enter(2, "crowd");
  room.Enter(3, "crowd");
  EXPECT_EQ(room.Enter(4, "crowd"), 2u);
  EXPECT_EQ(room.Enter(5, "crowd"), 3u);
  EXPECT_EQ(room.Enter(6, "other"), 4u);
  EXPECT_EQ(room.size(), 3u);
}

TEST(PendingConnectionsTest, EvictsOldestAmongEqualGroups) {
  PendingConnections room(2);
  room.Enter(1, "a");
  room.Enter(2, "b");
  EXPECT_EQ(room.Enter(3, "c"), 1u);
}

TEST(PendingConnectionsTest, NextToLeaveIsOldestOfTheLargestGroup) {
  PendingConnections room(9);
  EXPECT_EQ(room.NextToLeave(), std::nullopt);
  room.Enter(1, "a");
  room.Enter(2, "b");
  room.Enter(3, "b");
  EXPECT_EQ(room.NextToLeave(), 2u);
}

TEST(PendingConnectionsTest, IgnoresRemovalOfAbsentConnection) {
  PendingConnections room(2);
  room.Enter(1, "a");
  room.Leave(1, "a");
  room.Leave(1, "a");
  room.Leave(2, "b");
  EXPECT_EQ(room.size(), 0u);
}

}  // namespace
}  // namespace dslaunch::pending_connections_test
