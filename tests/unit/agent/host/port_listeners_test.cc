#include "agent/host/port_listeners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "base/unique_fd.h"
#include "proto/contract/port_reservation.h"

namespace dslaunch::port_listeners_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kColumns[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";
constexpr char kListens1000[] =
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 "
    "28137 1 0000000000000000 100 0 0 10 0\n";
constexpr char kListens4294967294[] =
    "   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 4294967294        "
    "0 28138 1 0000000000000000 100 0 0 10 0\n";
constexpr char kElsewhere[] =
    "   2: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 "
    "28139 1 0000000000000000 100 0 0 10 0\n";
constexpr char kConnected[] =
    "   3: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     8        0 "
    "28140 1 0000000000000000 20 4 30 10 -1\n";
constexpr char kV6[] =
    "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A "
    "00000000:00000000 00:00000000 00000000    33        0 28141 1 0000000000000000 100 0 0 10 0\n";

std::set<uid_t> In(const std::string& lines) {
  std::istringstream table(kColumns + lines);
  return ListenersIn(table, 0x1f90);
}

TEST(PortListenersTest, ReturnsOnlyListenersAtThePort) {
  EXPECT_THAT(In(std::string(kListens1000) + kListens4294967294 + kElsewhere + kConnected),
              ElementsAre(1000, 4294967294));
  EXPECT_THAT(In(kV6), ElementsAre(33));
  EXPECT_THAT(In(kElsewhere), IsEmpty());
  EXPECT_THAT(In(kConnected), IsEmpty()) << "who is connected does not listen";
}

TEST(PortListenersTest, SkipsMalformedLines) {
  for (const char* text : {"", "\n", "x\n", ": : : 0A : : : :\n", "0: 1:1F90 0 0A 0 0 0 -1\n",
                           "0: 1:1F90 0 0A 0 0 0 99999999999\n", "0: 1F90 0 0A\n"}) {
    EXPECT_THAT(In(text), IsEmpty()) << text;
  }
}

TEST(PortListenersTest, UserAndRootAreNotStrangers) {
  EXPECT_EQ(StrangerAmong({}, 1000), std::nullopt);
  EXPECT_EQ(StrangerAmong({0, 1000}, 1000), std::nullopt);
  EXPECT_EQ(StrangerAmong({0, 33, 1000}, 1000), 33);
  EXPECT_EQ(StrangerAmong({1000}, 0), 1000);
}

TEST(PortListenersTest, ReturnsUidOfListeningSocket) {
  const Result<PortReservation> own = ReservePort(0);
  ASSERT_TRUE(own.ok());
  for (const auto listeners : {ListenersAt, ListenersByTables})
    EXPECT_THAT(listeners(own->port), ElementsAre(::geteuid()));
  own->LetOthersListen();
  for (const auto listeners : {ListenersAt, ListenersByTables})
    EXPECT_THAT(listeners(own->port), IsEmpty());
}

TEST(PortListenersTest, FindsListenerOnIpv4Only) {
  const Result<PortReservation> own = ListenOnLoopback();
  ASSERT_TRUE(own.ok());
  EXPECT_THAT(ListenersAt(own->port), ElementsAre(::geteuid()));
}

// A client must not count as a listener, because otherwise a client of the port, or a listener at
// another port, would end the job.
TEST(PortListenersTest, ClientIsNotAListener) {
  const Result<PortReservation> listener = ListenOnLoopback();
  ASSERT_TRUE(listener.ok());
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::connect(client.get(), any, sizeof address), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(client.get(), any, &size), 0);
  EXPECT_THAT(ListenersAt(ntohs(address.sin_port)), IsEmpty());
}

TEST(PortListenersTest, ConnectedToCountsClientsOnly) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  const auto nobody = ConnectedTo(port);
  if (!nobody) GTEST_SKIP() << "this kernel has no sock_diag";
  EXPECT_THAT(*nobody, IsEmpty());
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_THAT(*ConnectedTo(port), ElementsAre(::geteuid()));
}

}  // namespace
}  // namespace dslaunch::port_listeners_test
