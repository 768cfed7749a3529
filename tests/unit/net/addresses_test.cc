#include "net/addresses.h"

#include <gtest/gtest.h>

namespace dslaunch::addresses_test {
namespace {

TEST(AddressesTest, JoinedHostAndPortCanBeSplitAgain) {
  EXPECT_EQ(JoinHostPort("10.0.0.1", 29500), "10.0.0.1:29500");
  EXPECT_EQ(JoinHostPort("fd66::1", 80), "[fd66::1]:80");
  for (const char* address : {"10.0.0.1", "fd66::1", "::1"}) {
    EXPECT_EQ(HostOfEndpoint(JoinHostPort(address, 1)), address);
  }
}

TEST(AddressesTest, LoopbackUsesLoAndIsNotReachable) {
  EXPECT_EQ(InterfaceTowards("127.0.0.1"), "lo");
  for (const std::string& address : ReachableAddresses())
    EXPECT_FALSE(address.starts_with("127.")) << address;
}

TEST(AddressesTest, FindsNoInterfaceForInvalidAddress) {
  EXPECT_EQ(InterfaceTowards("not an address"), std::nullopt);
}

}  // namespace
}  // namespace dslaunch::addresses_test
