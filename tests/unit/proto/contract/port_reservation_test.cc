#include "proto/contract/port_reservation.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace dslaunch::port_reservation_test {
namespace {

// Binds and listens as a server does, with or without SO_REUSEADDR. Returns whether both succeeded.
bool CanListen(const UniqueFd& fd, int port, bool reuse) {
  const int on = reuse ? 1 : 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
         listen(fd.get(), 1) == 0;
}

UniqueFd NewSocket() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST(PortReservationTest, RankZeroCanListenOnTheHeldPort) {
  const auto reservation = ReservePort(0);
  ASSERT_TRUE(reservation.ok());
  EXPECT_GT(reservation->port, 0);
  reservation->LetOthersListen();
  const UniqueFd server = NewSocket();
  EXPECT_TRUE(CanListen(server, reservation->port, /*reuse=*/true));
}

TEST(PortReservationTest, PreventsOthersFromListeningBefore) {
  const auto reservation = ReservePort(0);
  ASSERT_TRUE(reservation.ok());
  const UniqueFd stranger = NewSocket();
  EXPECT_FALSE(CanListen(stranger, reservation->port, /*reuse=*/true));
}

TEST(PortReservationTest, HoldsThePortOnLoopbackOnly) {
  const auto reservation = ReservePort(0, PortScope::kLoopback);
  ASSERT_TRUE(reservation.ok());
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(reservation->socket.get(), reinterpret_cast<sockaddr*>(&address), &size),
            0);
  EXPECT_EQ(address.sin_family, AF_INET);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);
  const UniqueFd stranger = NewSocket();
  EXPECT_FALSE(CanListen(stranger, reservation->port, /*reuse=*/true));
  reservation->LetOthersListen();
  const UniqueFd server = NewSocket();
  EXPECT_TRUE(CanListen(server, reservation->port, /*reuse=*/true)) << "rank 0, at all addresses";
}

TEST(PortReservationTest, RefusesALoopbackPortThatIsTakenAtAnotherAddress) {
  const UniqueFd server = NewSocket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);  // 127.0.0.2
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(server.get(), 1), 0);
  getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_FALSE(ReservePort(ntohs(address.sin_port), PortScope::kLoopback).ok())
      << "rank 0 could not listen at all addresses";
}

TEST(PortReservationTest, LoopbackListenerExcludesOtherListeners) {
  const auto reservation = ListenOnLoopback();
  ASSERT_TRUE(reservation.ok());
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(reservation->socket.get(), reinterpret_cast<sockaddr*>(&address), &size),
            0);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_EQ(ntohs(address.sin_port), reservation->port);
  const UniqueFd stranger = NewSocket();
  EXPECT_FALSE(CanListen(stranger, reservation->port, /*reuse=*/true));
}

TEST(PortReservationTest, HeldPortIsNotAssignedAgain) {
  const auto reservation = ReservePort(0);
  ASSERT_TRUE(reservation.ok());
  const UniqueFd stranger = NewSocket();
  reservation->LetOthersListen();
  EXPECT_FALSE(CanListen(stranger, reservation->port, /*reuse=*/false));
  for (int i = 0; i < 200; ++i) EXPECT_NE(ReservePort(0)->port, reservation->port);
}

TEST(PortReservationTest, NamesPortInUseWithHint) {
  const UniqueFd server = NewSocket();
  ASSERT_TRUE(CanListen(server, 0, true));
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  const auto reservation = ReservePort(port);
  ASSERT_FALSE(reservation.ok());
  EXPECT_EQ(reservation.error().code, ExitCode::kUnavailable);
  EXPECT_NE(reservation.error().message.find(std::to_string(port)), std::string::npos);
  EXPECT_NE(reservation.error().message.find("--master_port"), std::string::npos);
}

}  // namespace
}  // namespace dslaunch::port_reservation_test
