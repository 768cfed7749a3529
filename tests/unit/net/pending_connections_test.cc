#include "net/pending_connections.h"

#include <gtest/gtest.h>

namespace dslaunch::pending_connections_test {
namespace {

TEST(PendingConnectionsTest, AcceptsUpToItsLimit) {
  PendingConnections room(2);
  EXPECT_EQ(room.Add(1, "a"), std::nullopt);
  EXPECT_EQ(room.Add(2, "a"), std::nullopt);
  room.Remove(1, "a");
  EXPECT_EQ(room.Add(3, "b"), std::nullopt);
  EXPECT_EQ(room.size(), 2u);
}

TEST(PendingConnectionsTest, EvictsOldestOfTheLargestGroup) {
  PendingConnections room(3);
  room.Add(1, "node");
  room.Add(2, "crowd");
  room.Add(3, "crowd");
  EXPECT_EQ(room.Add(4, "crowd"), 2u);
  EXPECT_EQ(room.Add(5, "crowd"), 3u);
  EXPECT_EQ(room.Add(6, "other"), 4u);
  EXPECT_EQ(room.size(), 3u);
}

TEST(PendingConnectionsTest, EvictsOldestAmongEqualGroups) {
  PendingConnections room(2);
  room.Add(1, "a");
  room.Add(2, "b");
  EXPECT_EQ(room.Add(3, "c"), 1u);
}

TEST(PendingConnectionsTest, NextToEvictIsOldestOfTheLargestGroup) {
  PendingConnections room(9);
  EXPECT_EQ(room.NextToEvict(), std::nullopt);
  room.Add(1, "a");
  room.Add(2, "b");
  room.Add(3, "b");
  EXPECT_EQ(room.NextToEvict(), 2u);
}

TEST(PendingConnectionsTest, IgnoresRemovalOfAbsentConnection) {
  PendingConnections room(2);
  room.Add(1, "a");
  room.Remove(1, "a");
  room.Remove(1, "a");
  room.Remove(2, "b");
  EXPECT_EQ(room.size(), 0u);
}

}  // namespace
}  // namespace dslaunch::pending_connections_test
