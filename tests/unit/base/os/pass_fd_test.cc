#include "base/os/pass_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "base/os/socket_pair.h"

namespace dslaunch::pass_fd_test {
namespace {

TEST(PassFdTest, DescriptorArrivesWithItsBytes) {
  const SocketPair pair = *MakeSocketPair();
  const SocketPair passed = *MakeSocketPair();
  ASSERT_TRUE(SendWithFd(pair.ours.get(), "first", passed.theirs.get()));
  ASSERT_TRUE(SendWithFd(pair.ours.get(), "second", -1));
  char bytes[16];
  UniqueFd fd;
  ASSERT_EQ(ReceiveWithFd(pair.theirs.get(), bytes, 5, fd), 5);
  EXPECT_EQ(std::string(bytes, 5), "first");
  ASSERT_TRUE(fd.valid());
  EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(send(fd.get(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_EQ(recv(passed.ours.get(), bytes, 1, 0), 1);
  EXPECT_EQ(bytes[0], 'x');
  const int before = fd.get();
  ASSERT_EQ(ReceiveWithFd(pair.theirs.get(), bytes, sizeof bytes, fd), 6);
  EXPECT_EQ(fd.get(), before) << "none came with these";
}

TEST(PassFdTest, ReportsFullBufferAndClosedPeer) {
  SocketPair pair = *MakeSocketPair();
  fcntl(pair.ours.get(), F_SETFL, O_NONBLOCK);
  const std::string much(1 << 20, 'x');
  while (SendSomeWithFd(pair.ours.get(), much, -1) > 0) {
  }
  EXPECT_EQ(errno, EAGAIN);
  pair.theirs.Reset();
  EXPECT_FALSE(SendWithFd(pair.ours.get(), "x", -1));
  char byte;
  UniqueFd fd;
  EXPECT_LE(ReceiveWithFd(pair.ours.get(), &byte, 1, fd), 0);
}

}  // namespace
}  // namespace dslaunch::pass_fd_test
