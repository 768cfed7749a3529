#include "base/signal_name.h"

#include <gtest/gtest.h>

#include <csignal>

namespace dslaunch::signal_name_test {
namespace {

TEST(SignalName, NamesAndNumbers) {
  EXPECT_EQ(SignalName(SIGKILL), "SIGKILL");
  EXPECT_EQ(SignalName(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(SignalName(40), "signal 40");
  EXPECT_EQ(SignalName(9999), "signal 9999");
}

}  // namespace
}  // namespace dslaunch::signal_name_test
