#include "agent/core/slot_ledger.h"

#include <gtest/gtest.h>

#include <random>

namespace dslaunch::slot_ledger_test {
namespace {

using enum GoodputBucket;

constexpr milliseconds kHang10S(10'000);

StatusLine Line(StatusLine::Event event, int64_t step = 0) {
  StatusLine line;
  line.event = event;
  line.step = step;
  return line;
}

StatusLine Ready() { return Line(StatusLine::Event::kReady); }
StatusLine Step(int64_t step) { return Line(StatusLine::Event::kStep, step); }

StatusLine Wait(const std::string& exchange, double waits_s) {
  StatusLine line = Line(StatusLine::Event::kWait);
  line.exchange = exchange;
  line.waits_s = waits_s;
  return line;
}

class SlotLedgerTest : public testing::Test {
 protected:
  void Pass(int64_t ms) { now_ += milliseconds(ms); }
  void Tell(const StatusLine& line) { ledger_.OnStatus(line, now_); }
  void Begin(uint64_t best_step = 0) {
    ledger_.BeginAttempt(best_step, kHang10S, now_);
    ledger_.OnAllStarted(now_);
  }
  // Makes `steps` steps of one second each after `step`. Returns the last step.
  int64_t Steps(int64_t step, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      Pass(1'000);
      Tell(Step(++step));
    }
    return step;
  }
  uint64_t Ms(GoodputBucket bucket) const { return ledger_.Times(now_)[bucket] / 1'000; }
  uint64_t SumMs() const { return ledger_.Times(now_).Sum() / 1'000; }
  uint64_t PassedMs() const { return static_cast<uint64_t>((now_ - begin_).count() / 1'000'000); }

  Clock::time_point now_ = Clock::now();
  const Clock::time_point begin_ = now_;
  SlotLedger ledger_{now_};
};

TEST_F(SlotLedgerTest, DividesAnAttemptByItsStatusLines) {
  Pass(3'000);
  Begin();
  Pass(2'000);
  Tell(Ready());
  Pass(4'000);
  Tell(Step(1));
  Steps(1, 5);
  Tell(Line(StatusLine::Event::kSave, 6));
  Pass(700);
  Tell(Line(StatusLine::Event::kSaved, 6));
  ledger_.EndAttempt(/*hung=*/false, now_);
  Pass(100);
  ledger_.OnDrained(now_);
  Pass(50);
  EXPECT_EQ(Ms(kRendezvous), 3'050u);
  EXPECT_EQ(Ms(kStart), 2'000u);
  EXPECT_EQ(Ms(kFirstStep), 4'000u);
  EXPECT_EQ(Ms(kProductive), 5'000u);
  EXPECT_EQ(Ms(kSave), 700u);
  EXPECT_EQ(Ms(kTeardown), 100u);
  EXPECT_EQ(SumMs(), PassedMs());
  ASSERT_TRUE(ledger_.saved());
  EXPECT_EQ(ledger_.saved()->step, 6);
}

TEST_F(SlotLedgerTest, KeepsNewestCopyOverRestart) {
  Begin();
  Tell(Ready());
  Tell(Step(1));
  EXPECT_FALSE(ledger_.copied());
  Tell(Line(StatusLine::Event::kCopied, 1));
  const Clock::time_point copied_at = now_;
  Steps(1, 3);
  ledger_.EndAttempt(/*hung=*/false, now_);
  ledger_.OnDrained(now_);
  Begin();
  ASSERT_TRUE(ledger_.copied());
  EXPECT_EQ(ledger_.copied()->step, 1);
  EXPECT_EQ(ledger_.copied()->at, copied_at);
  EXPECT_FALSE(ledger_.saved());
}

TEST_F(SlotLedgerTest, DropsCopyAfterRestartFromEarlierStep) {
  Begin();
  Tell(Step(20));
  Tell(Line(StatusLine::Event::kCopied, 20));
  ledger_.EndAttempt(/*hung=*/false, now_);
  Begin();
  Tell(Step(1));
  EXPECT_FALSE(ledger_.copied());
}

TEST_F(SlotLedgerTest, CountsSilentProgramAsProductive) {
  Begin();
  Pass(60'000);
  EXPECT_EQ(Ms(kProductive), 60'000u);
  Tell(Ready());  // the first report shows that the time before was the start
  EXPECT_EQ(Ms(kProductive), 0u);
  EXPECT_EQ(Ms(kStart), 60'000u);
}

TEST_F(SlotLedgerTest, CountsRepeatedStepsAsRecomputed) {
  Begin();
  Pass(1'000);
  Tell(Step(1));
  Steps(1, 9);
  ledger_.EndAttempt(/*hung=*/false, now_);
  Begin();
  Pass(1'000);
  Tell(Step(5));
  Pass(500);
  EXPECT_EQ(Ms(kRecomputed), 500u);  // step 6 is being computed again
  Pass(500);
  Tell(Step(6));
  Steps(6, 6);  // up to step 12; steps 11 and 12 are new
  EXPECT_EQ(Ms(kRecomputed), 5'000u);
  EXPECT_EQ(Ms(kProductive), 9'000u + 2'000u);
  EXPECT_EQ(SumMs(), PassedMs());
}

TEST_F(SlotLedgerTest, CountsStepsOfEarlierNodesAsRecomputed) {
  Begin(/*best_step=*/3);
  Tell(Step(1));
  Pass(3'000);
  Tell(Step(4));  // one line reports steps 2, 3 and 4
  EXPECT_EQ(Ms(kRecomputed), 2'000u);
  EXPECT_EQ(Ms(kProductive), 1'000u);
}

TEST_F(SlotLedgerTest, CountsReportedWaits) {
  Begin();
  Tell(Step(1));
  Steps(1, 3);
  Pass(5'000);
  Tell(Wait("an all-reduce (4)", 4.0));
  Pass(2'000);
  Tell(Wait("", 0));
  Pass(100);
  EXPECT_EQ(Ms(kWaiting), 6'000u);
  EXPECT_EQ(Ms(kProductive), 3'000u + 1'000u + 100u);
}

TEST_F(SlotLedgerTest, CountsTimeBeyondComputeAndExchangeAsWaiting) {
  ledger_.SetExchangeTime(std::chrono::milliseconds(100));
  Begin();
  Tell(Step(1));
  Pass(1'000);
  StatusLine step = Step(2);
  step.compute_s = 0.6;
  Tell(step);
  EXPECT_EQ(Ms(kProductive), 700u);
  EXPECT_EQ(Ms(kWaiting), 300u);
}

TEST_F(SlotLedgerTest, CountsLongTimeWithoutStepAsHang) {
  Begin();
  Tell(Step(1));
  const int64_t step = Steps(1, 3);
  Pass(9'000);
  EXPECT_EQ(Ms(kHang), 0u);
  Pass(21'000);
  EXPECT_EQ(Ms(kHang), 30'000u);
  Tell(Step(step + 1));
  Steps(step + 1, 2);
  EXPECT_EQ(Ms(kHang), 30'000u);
  EXPECT_EQ(Ms(kProductive), 5'000u);
}

TEST_F(SlotLedgerTest, LongEvaluationIsNotAHang) {
  Begin();
  Tell(Step(1));
  const int64_t step = Steps(1, 3);
  Pass(30'000);
  Tell(Line(StatusLine::Event::kEval, step));
  Tell(Step(step + 1));
  EXPECT_EQ(Ms(kHang), 0u);
}

TEST_F(SlotLedgerTest, CountsTimeSinceLastStepAsHangWhenAttemptHung) {
  Begin();
  Tell(Step(1));
  Steps(1, 3);
  Pass(2'000);
  Tell(Wait("a barrier (9)", 2.0));
  Pass(4'000);
  ledger_.EndAttempt(/*hung=*/true, now_);
  EXPECT_EQ(Ms(kHang), 6'000u);
  EXPECT_EQ(Ms(kWaiting), 0u);
  EXPECT_EQ(SumMs(), PassedMs());
}

TEST_F(SlotLedgerTest, StillnessOfSilentProgramIsWaitingOrHang) {
  Begin();
  Pass(60'000);
  pb::Stillness still;
  still.set_looks(6);
  still.set_still_us(30'000'000);
  ledger_.OnStillness(still, /*job_stands_still=*/false, now_);
  EXPECT_EQ(Ms(kWaiting), 30'000u);
  Pass(10'000);
  still.set_still_us(40'000'000);
  ledger_.OnStillness(still, /*job_stands_still=*/true, now_);
  EXPECT_EQ(Ms(kHang), 40'000u);
  EXPECT_EQ(Ms(kWaiting), 0u);
  Pass(5'000);
  still.set_looks(0);
  still.set_still_us(0);
  ledger_.OnStillness(still, /*job_stands_still=*/false, now_);
  Pass(5'000);
  EXPECT_EQ(Ms(kHang), 40'000u);
  EXPECT_EQ(Ms(kProductive), 40'000u);
}

TEST_F(SlotLedgerTest, CountsRankThatEndedFirstAsWaiting) {
  Begin();
  Tell(Step(1));
  Steps(1, 2);
  ledger_.OnSucceeded(now_);
  Pass(100'000);
  ledger_.EndAttempt(/*hung=*/false, now_);
  EXPECT_EQ(Ms(kWaiting), 100'000u);
  EXPECT_EQ(Ms(kProductive), 2'000u);
}

// The times must add up to the total, whatever a program reports and in whatever order.
TEST_F(SlotLedgerTest, TimesAlwaysAddUp) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  for (int i = 0; i < 20'000; ++i) {
    now_ += std::chrono::nanoseconds(below(2'000'000'000));
    switch (below(9)) {
      case 0:
        Begin(static_cast<uint64_t>(below(50)));
        break;
      case 1:
        ledger_.EndAttempt(below(2) == 0, now_);
        break;
      case 2:
        ledger_.OnDrained(now_);
        break;
      case 3:
        ledger_.OnSucceeded(now_);
        break;
      case 4: {
        pb::Stillness still;
        still.set_looks(static_cast<uint32_t>(below(12)));
        still.set_still_us(static_cast<uint64_t>(below(1 << 30)));
        ledger_.OnStillness(still, below(2) == 0, now_);
        break;
      }
      case 5:
        Tell(Wait(below(2) == 0 ? "" : "a barrier", below(1'000)));
        break;
      default: {
        StatusLine line = Line(static_cast<StatusLine::Event>(below(9)), below(60));
        if (below(2) == 0) line.compute_s = below(3) - 1.0;
        ledger_.SetExchangeTime(std::chrono::milliseconds(below(1'000)));
        Tell(line);
      }
    }
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now_ - begin_);
    ASSERT_EQ(ledger_.Times(now_).Sum(), static_cast<uint64_t>(passed.count())) << "event " << i;
  }
}

}  // namespace
}  // namespace dslaunch::slot_ledger_test
