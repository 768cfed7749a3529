#include "agent/signs/rank_signs.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "agent/node/rank_watch.h"
#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::rank_signs_test {
namespace {

// Both ends of a TCP connection on this machine, and the local port of the accepting end.
struct Connection {
  UniqueFd client;
  UniqueFd server;
  int port = 0;
};

Connection Connect() {
  Connection made;
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), generic, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), generic, &size), 0);
  made.client = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(made.client.get(), generic, size), 0);
  made.server = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  made.port = ntohs(address.sin_port);
  return made;
}

class RankSignsTest : public ::testing::Test {
 protected:
  RankSigns Read(pid_t pid, int store_port = 1) const {
    const auto signs = ReadRankSigns({{pid, folder_.path()}}, store_port);
    EXPECT_TRUE(signs.at(0));
    return signs.at(0).value_or(RankSigns());
  }
  RankSigns ReadOwn(int store_port = 1) const { return Read(::getpid(), store_port); }

  const TempDir folder_;
};

TEST_F(RankSignsTest, CountsBytesOfConnections) {
  const Connection connection = Connect();
  const RankSigns before = ReadOwn();
  ASSERT_EQ(::send(connection.client.get(), "12345", 5, 0), 5);
  const RankSigns sent = ReadOwn();
  EXPECT_EQ(sent.peer_bytes - before.peer_bytes, 10u) << "of both ends";
  EXPECT_EQ(sent.unread_bytes - before.unread_bytes, 5u);
  char bytes[8];
  ASSERT_EQ(::recv(connection.server.get(), bytes, sizeof bytes, 0), 5);
  EXPECT_EQ(ReadOwn().unread_bytes, before.unread_bytes);
}

TEST_F(RankSignsTest, CountsConnectionsToStoreApart) {
  const Connection connection = Connect();
  const RankSigns before = ReadOwn(connection.port);
  ASSERT_EQ(::send(connection.client.get(), "12345", 5, 0), 5);
  const RankSigns after = ReadOwn(connection.port);
  EXPECT_EQ(after.peer_bytes, before.peer_bytes);
  EXPECT_EQ(after.unread_bytes, before.unread_bytes);
  EXPECT_EQ(after.store_bytes - before.store_bytes, 10u);
}

TEST_F(RankSignsTest, CountsOutput) {
  EXPECT_EQ(ReadOwn().output_bytes, 0u);
  std::ofstream(folder_.path() + "/stdout.log") << "abc";
  std::ofstream(folder_.path() + "/stderr.log") << "de";
  EXPECT_EQ(ReadOwn().output_bytes, 5u);
}

TEST_F(RankSignsTest, NoticesChildrenAndStops) {
  const RankSigns before = ReadOwn();
  EXPECT_EQ(ReadOwn().processes, before.processes);
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  EXPECT_NE(ReadOwn().processes, before.processes);
  EXPECT_FALSE(Read(child).stopped);
  ::kill(child, SIGSTOP);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_TRUE(Read(child).stopped);
  EXPECT_TRUE(ReadOwn().stopped);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  EXPECT_EQ(ReadOwn().processes, before.processes);
}

TEST_F(RankSignsTest, ReturnsNothingForRankThatDoesNotRun) {
  const auto signs = ReadRankSigns({{0, ""}, {::getpid(), folder_.path()}}, 1);
  ASSERT_EQ(signs.size(), 2u);
  EXPECT_FALSE(signs[0]);
  EXPECT_TRUE(signs[1]);
}

TEST(NextMarkTest, IsNearestTimeThatDecides) {
  using std::chrono::seconds;
  pb::Stillness rank;
  const auto next = [&](int still_s, int only_cpu_s) {
    rank.set_still_us(static_cast<uint64_t>(still_s) * 1'000'000);
    rank.set_only_cpu_us(static_cast<uint64_t>(only_cpu_s) * 1'000'000);
    return NextMark({rank}, seconds(0), seconds(60));
  };
  EXPECT_EQ(next(10, 10), seconds(48)) << "2 s before the limit";
  EXPECT_EQ(next(58, 58), seconds(2));
  EXPECT_EQ(next(0, 59), seconds(1));
  EXPECT_EQ(next(60, 200), seconds(98)) << "2 s before 300 s of CPU time alone";
  EXPECT_EQ(next(60, 300), std::nullopt);
  rank.set_ended(true);
  EXPECT_EQ(next(10, 10), std::nullopt);
}

TEST(LookIntervalTest, IsTwelfthOfShorterLimit) {
  using std::chrono::seconds;
  EXPECT_EQ(LookInterval(seconds(1'800), seconds(600)), seconds(50));
  EXPECT_EQ(LookInterval(seconds(60), seconds(0)), seconds(5));
  EXPECT_EQ(LookInterval(seconds(0), seconds(60)), seconds(5));
  EXPECT_EQ(LookInterval(seconds(0), milliseconds(500)), milliseconds(100));
  EXPECT_EQ(LookInterval(seconds(0), seconds(0)), seconds(0));
}

}  // namespace
}  // namespace dslaunch::rank_signs_test
