#include "rendezvous/join_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::join_addresses_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const AcceptedNode kNode = {.index = 2, .address = "10.0.0.2", .own_address = "10.0.0.1"};

pb::Join Join(const std::string& address, const std::string& reached_at) {
  pb::Join join;
  join.set_address(address);
  join.set_reached_at(reached_at);
  return join;
}

TEST(JoinAddressesTest, KeepsCorrectAddresses) {
  pb::Join join = Join("10.0.0.2", "10.0.0.1");
  EXPECT_THAT(CorrectAddresses(join, kNode, ""), IsEmpty());
  EXPECT_EQ(join.address(), "10.0.0.2");
  EXPECT_EQ(join.reached_at(), "10.0.0.1");
}

TEST(JoinAddressesTest, ReplacesFalseClaimsByConnectionsAddresses) {
  for (const char* claim : {"6.6.6.6", "127.0.0.1", "", "evil.example", "10.0.0.1 -x"}) {
    pb::Join join = Join(claim, "10.0.0.1");
    EXPECT_THAT(
        CorrectAddresses(join, kNode, ""),
        ElementsAre("node 2 claims '" + std::string(claim) + "' as its address; 10.0.0.2 is used"));
    EXPECT_EQ(join.address(), "10.0.0.2");
    if (*claim == '\0') continue;
    join = Join("10.0.0.2", claim);
    EXPECT_THAT(CorrectAddresses(join, kNode, ""),
                ElementsAre("node 2 claims '" + std::string(claim) +
                            "' as this machine's address; 10.0.0.1 is used"));
    EXPECT_EQ(join.reached_at(), "10.0.0.1");
  }
}

TEST(JoinAddressesTest, KeepsAdvertisedAddress) {
  pb::Join join = Join("10.0.0.2", "192.0.2.7");
  EXPECT_THAT(CorrectAddresses(join, kNode, "192.0.2.7"), IsEmpty());
  EXPECT_EQ(join.reached_at(), "192.0.2.7");
}

TEST(JoinAddressesTest, KeepsEmptyAddressesOfOwnAgent) {
  pb::Join join;
  EXPECT_THAT(CorrectAddresses(join, {.index = 0}, ""), IsEmpty());
  EXPECT_EQ(join.address(), "");
  EXPECT_EQ(join.reached_at(), "");
}

}  // namespace
}  // namespace dslaunch::join_addresses_test
