#include "cli/transport/login_gate.h"

#include <gtest/gtest.h>

#include <vector>

namespace dslaunch::login_gate_test {
namespace {

Deadline Now() { return Deadline::After(milliseconds(0)); }

TEST(LoginGateTest, AllowsEightLoginsPerSshd) {
  LoginGate gate;
  std::vector<LoginGate::Turn> turns;
  for (size_t i = 0; i < LoginGate::kPerSshd; ++i) {
    auto turn = gate.Enter("bastion", Now());
    ASSERT_TRUE(turn.has_value());
    turns.push_back(std::move(*turn));
  }
  EXPECT_FALSE(gate.Enter("bastion", Now()).has_value());
  EXPECT_TRUE(gate.Enter("node1", Now()).has_value()) << "another sshd";
  turns.pop_back();
  EXPECT_TRUE(gate.Enter("bastion", Now()).has_value());
}

TEST(LoginGateTest, LimitsTotalNumberOfLogins) {
  LoginGate gate;
  std::vector<LoginGate::Turn> turns;
  for (size_t i = 0; i < LoginGate::kInTotal; ++i) {
    auto turn = gate.Enter("node" + std::to_string(i), Now());
    ASSERT_TRUE(turn.has_value());
    turns.push_back(std::move(*turn));
  }
  EXPECT_FALSE(gate.Enter("another", Now()).has_value());
}

TEST(LoginGateTest, StopsCountingSlowLogins) {
  LoginGate gate;
  std::vector<LoginGate::Turn> turns;
  for (size_t i = 0; i < LoginGate::kPerSshd; ++i) turns.push_back(*gate.Enter("silent", Now()));
  const auto start = Clock::now();
  EXPECT_TRUE(gate.Enter("silent", Deadline::After(milliseconds(20'000))).has_value());
  EXPECT_GE(Clock::now() - start, LoginGate::kCountsFor - milliseconds(500));
  EXPECT_LT(Clock::now() - start, LoginGate::kCountsFor + milliseconds(2000));
}

TEST(LoginGateTest, HalvesLimitWhenSshdTurnsLoginsAway) {
  LoginGate gate;
  EXPECT_EQ(gate.LimitFor("bastion"), 8u);
  for (const size_t limit : {4, 2, 1, 1}) {
    gate.OnTurnedAway("bastion");
    EXPECT_EQ(gate.LimitFor("bastion"), limit);
  }
  EXPECT_EQ(gate.LimitFor("other"), 8u);
  auto turn = gate.Enter("bastion", Now());
  EXPECT_FALSE(gate.Enter("bastion", Now()).has_value());
}

TEST(IsTurnedAwayTextTest, DistinguishesOverloadFromRefusal) {
  EXPECT_TRUE(
      IsTurnedAwayText("kex_exchange_identification: Connection closed by remote host\r\n"
                       "Connection closed by 10.0.0.1 port 22\r\n"));
  EXPECT_TRUE(IsTurnedAwayText("kex_exchange_identification: read: Connection reset by peer\r\n"));
  EXPECT_TRUE(IsTurnedAwayText("Connection reset by 10.0.0.1 port 22\r\n"));
  EXPECT_FALSE(IsTurnedAwayText(""));
  EXPECT_FALSE(IsTurnedAwayText("alice@gate: Permission denied (publickey).\r\n"));
  // The inner ssh was refused, and the outer ssh only lost its connection.
  const std::string outer = "kex_exchange_identification: Connection closed by remote host\r\n";
  EXPECT_FALSE(IsTurnedAwayText("alice@gate: Permission denied (publickey).\r\n" + outer));
  EXPECT_FALSE(IsTurnedAwayText("Host key verification failed.\r\n" + outer));
  EXPECT_FALSE(
      IsTurnedAwayText("ssh: connect to host gate port 22: Connection refused\r\n" + outer));
}

}  // namespace
}  // namespace dslaunch::login_gate_test
