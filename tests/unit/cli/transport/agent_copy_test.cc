#include "cli/transport/agent_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace dslaunch::agent_copy_test {
namespace {

using State = CopyDialog::State;

TEST(CopyDialogTest, ReadsWhatTheScriptWants) {
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab gzip\n"), State::kSendGzip);
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab raw\n"), State::kSendRaw);
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab have\n"), State::kHave);
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab wait\n"), State::kWaiting);
}

TEST(CopyDialogTest, WaitsForAWholeLineBehindAnyNoise) {
  CopyDialog dialog("12ab");
  EXPECT_EQ(dialog.Feed("Welcome!\nDSLAUNCH-COPY 34cd have\n" + std::string(100'000, 'x')),
            State::kWaiting);
  EXPECT_EQ(dialog.Feed("\n$ DSLAUNCH-COPY 12ab wait\nDSLAUNCH-COPY 12ab gz"), State::kWaiting);
  EXPECT_EQ(dialog.Feed("ip\nDSLAUNCH-COPY 12ab have\n"), State::kSendGzip);
}

TEST(CopyGateTest, EightAtOnce) {
  CopyGate gate;
  std::vector<CopyGate::Turn> turns;
  while (std::optional<CopyGate::Turn> turn = gate.TryEnter()) turns.push_back(*std::move(turn));
  EXPECT_EQ(turns.size(), 8u);
  turns.pop_back();
  EXPECT_TRUE(gate.TryEnter().has_value());
  EXPECT_TRUE(gate.TryEnter().has_value());  // the one before has ended
}

}  // namespace
}  // namespace dslaunch::agent_copy_test
