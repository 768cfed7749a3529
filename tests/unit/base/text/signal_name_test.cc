#include "base/text/signal_name.h"

#include <gtest/gtest.h>

#include <csignal>

namespace dslaunch::signal_name_test {
namespace {

TEST(SignalName, ReturnsNameOrNumber) {
  EXPECT_EQ(SignalName(SIGKILL), "SIGKILL");
  EXPECT_EQ(SignalName(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(SignalName(40), "signal 40");
  EXPECT_EQ(SignalName(9999), "signal 9999");
}

TEST(SignalName, OmitsIgnoredSignals) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(NotIgnored({SIGTERM, SIGHUP, SIGUSR1}), (std::vector<int>{SIGTERM, SIGUSR1}));
  std::signal(SIGHUP, before);
}

}  // namespace
}  // namespace dslaunch::signal_name_test
