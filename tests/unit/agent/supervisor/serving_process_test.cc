#include "agent/supervisor/serving_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace dslaunch::serving_process_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ServingProcessTest, ReadsListeningSocketsFromKernelTables) {
  EXPECT_THAT(ListeningUnixSockets(
                  "Num       RefCount Protocol Flags    Type St Inode Path\n"
                  "000000000ccc6376: 00000003 00000000 00000000 0001 03 463577 /tmp/a.sock\n"
                  "000000003be56b87: 00000002 00000000 00010000 0001 01 463894 /tmp/a.sock\n"),
              ElementsAre(463894u));
  EXPECT_THAT(
      ListeningTcpSockets(
          "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
          "   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0   "
          "     0 1531 1 0\n"
          "   1: 0100007F:07E8 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0   "
          "     0 1532 1 0\n"),
      ElementsAre(1531u));
  EXPECT_THAT(ListeningUnixSockets("head\n1 2 3\n\n"), IsEmpty());
}

TEST(ServingProcessTest, FindsProcessThatListens) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(Serves(getpid()));
  ASSERT_EQ(listen(fd.get(), 1), 0);
  EXPECT_TRUE(Serves(getpid()));
}

}  // namespace
}  // namespace dslaunch::serving_process_test
