#include "agent/logs/event_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/agent/logs/fake_sink.h"

namespace dslaunch::event_hub_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

pb::NodeEvent Started(uint64_t attempt) {
  pb::NodeEvent event;
  event.mutable_started()->set_attempt(attempt);
  return event;
}

pb::NodeSample SampleAt(uint64_t clock_us) {
  pb::NodeSample sample;
  sample.set_clock_us(clock_us);
  return sample;
}

std::string Word(const pb::NodeEvent& event) {
  if (event.has_notice()) return event.notice().message();
  if (event.has_started()) return "started " + std::to_string(event.started().attempt());
  if (event.has_status()) return "status " + event.status().line();
  if (event.has_outcome()) return "outcome";
  if (event.has_log()) {
    return "attempt " + std::to_string(event.log().attempt()) + " at " +
           std::to_string(event.log().offset()) + ": " + event.log().data();
  }
  return event.has_done() ? "done" : "?";
}

class EventHubTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeSink> View(const pb::AttachRequest& request) {
    auto sink = std::make_shared<FakeSink>();
    hub_.AddViewer(request, sink);
    return sink;
  }
  static pb::AttachRequest AllRanks() {
    pb::AttachRequest request;
    request.mutable_shown()->set_all(true);
    return request;
  }
  static void Name(pb::AttachRequest& request, uint64_t attempt, uint64_t offset) {
    for (const bool is_stderr : {false, true}) {
      pb::LogOffset& named = *request.add_offsets();
      named.set_attempt(attempt);
      named.set_rank(0);
      named.set_is_stderr(is_stderr);
      named.set_offset(is_stderr ? 0 : offset);
    }
  }
  // Accepts all events of the viewer and returns them, without empty pieces of output.
  std::vector<std::string> TakeAll(const std::shared_ptr<FakeSink>& sink) {
    std::vector<std::string> words;
    for (size_t i = 0; i < sink->events.size(); ++i) {
      if (!sink->events[i].has_log() || !sink->events[i].log().data().empty())
        words.push_back(Word(sink->events[i]));
      hub_.OnViewerWritten(sink.get(), true);
    }
    sink->events.clear();
    return words;
  }
  std::string Rank(const std::string& folder, const std::string& text) {
    std::filesystem::create_directories(dir_ / folder);
    dir_.Write(folder + "/stdout.log", text);
    dir_.Write(folder + "/stderr.log", "");
    return dir_ / folder;
  }

  asio::io_context loop_;
  TempDir dir_;
  EventHub hub_{loop_};
};

TEST_F(EventHubTest, ViewerGetsStateAndOutputFromNowOn) {
  hub_.Emit(Notice("old news"));
  hub_.FollowRank(1, 0, 0, Rank("e1", "before\n"));
  hub_.Emit(Started(1));
  hub_.EmitStatus(0, "{}");
  const auto sink = View(AllRanks());
  EXPECT_THAT(TakeAll(sink), ElementsAre("started 1", "status {}"));
  Rank("e1", "before\nafter\n");
  hub_.Emit(Notice("wake"));
  EXPECT_THAT(TakeAll(sink), ElementsAre("wake", "attempt 1 at 7: after\n"));
}

TEST_F(EventHubTest, ViewerGetsStandstillUntilItIsOver) {
  pb::NodeEvent standstill = Notice("no rank has moved");
  standstill.mutable_notice()->set_standstill(pb::Notice::BEGUN);
  hub_.Emit(standstill);
  hub_.Emit(Notice("other news"));
  EXPECT_THAT(TakeAll(View(AllRanks())), ElementsAre("no rank has moved"));
  pb::NodeEvent over = Notice("they move again");
  over.mutable_notice()->set_standstill(pb::Notice::OVER);
  hub_.Emit(over);
  EXPECT_THAT(TakeAll(View(AllRanks())), ElementsAre());
}

TEST_F(EventHubTest, ResumesOutputWithinAnEarlierAttempt) {
  hub_.FollowRank(1, 0, 0, Rank("e1", "0123456789"));
  hub_.EndAttempt();
  hub_.FollowRank(2, 0, 0, Rank("e2", "abc"));
  pb::AttachRequest request = AllRanks();
  Name(request, 1, 4);
  EXPECT_THAT(TakeAll(View(request)), ElementsAre("attempt 1 at 4: 456789", "attempt 2 at 0: abc"));
}

TEST_F(EventHubTest, SendsOffsetsOfFilesWithoutNewOutput) {
  hub_.FollowRank(1, 0, 0, Rank("e1", "12345"));
  const auto sink = View(AllRanks());
  ASSERT_EQ(sink->events.size(), 1u);
  EXPECT_EQ(sink->events[0].log().offset(), 5u);
  EXPECT_EQ(sink->events[0].log().data(), "");
}

TEST_F(EventHubTest, SendsOnlyRequestedRanks) {
  hub_.FollowRank(1, 3, 0, Rank("r3", ""));
  hub_.FollowRank(1, 4, 0, Rank("r4", ""));
  pb::AttachRequest request;
  request.mutable_shown()->add_ranks(4);
  const auto sink = View(request);
  TakeAll(sink);
  Rank("r3", "three");
  Rank("r4", "four");
  hub_.Emit(Notice("wake"));
  EXPECT_THAT(TakeAll(sink), ElementsAre("wake", "attempt 1 at 0: four"));
}

TEST_F(EventHubTest, FrontEndGetsSelectedLocalRanks) {
  pb::RankChoice choice;
  choice.set_all(true);
  choice.add_local_ranks(1);
  const auto front_end = std::make_shared<FakeSink>();
  hub_.Attach(RankSelection(choice), front_end);
  hub_.FollowRank(1, 6, 0, Rank("r6", "six"));
  hub_.FollowRank(1, 7, 1, Rank("r7", "seven"));
  hub_.End({});
  for (size_t i = 0; i < front_end->events.size(); ++i) hub_.OnWritten(true);
  ASSERT_EQ(front_end->events.size(), 2u);
  EXPECT_EQ(front_end->events[0].log().data(), "seven");
  EXPECT_EQ(front_end->events[0].log().local_rank(), 1u);
}

TEST(RankSelection, CombinesRanksAndLocalRanks) {
  pb::RankChoice choice;
  EXPECT_FALSE(RankSelection(choice).Has(0, 0, false));
  choice.add_ranks(4);
  EXPECT_TRUE(RankSelection(choice).Has(4, 0, false));
  EXPECT_FALSE(RankSelection(choice).Has(5, 1, false));
  choice.add_local_ranks(1);
  EXPECT_FALSE(RankSelection(choice).Has(4, 0, false));
  choice.set_all(true);
  EXPECT_TRUE(RankSelection(choice).Has(5, 1, false));
}

TEST(RankSelection, OmitsStreamsByLocalRank) {
  pb::RankChoice choice;
  choice.set_all(true);
  choice.set_left_out(3);
  (*choice.mutable_left_out_of())[1] = 2;
  EXPECT_FALSE(RankSelection(choice).Has(0, 0, false));
  EXPECT_FALSE(RankSelection(choice).Has(0, 0, true));
  EXPECT_TRUE(RankSelection(choice).Has(1, 1, false));
  EXPECT_FALSE(RankSelection(choice).Has(1, 1, true));
}

TEST_F(EventHubTest, DisconnectsOnlyTheViewerThatDoesNotRead) {
  const auto slow = View({});
  const auto good = View({});
  for (int i = 0; i < 3000; ++i) {
    hub_.Emit(Notice("x"));
    TakeAll(good);
  }
  EXPECT_TRUE(slow->finished);
  EXPECT_FALSE(good->finished);
  EXPECT_LE(slow->events.size(), 1u);
  hub_.Emit(Notice("y"));
  EXPECT_THAT(TakeAll(good), ElementsAre("y"));
}

TEST_F(EventHubTest, EndReachesEarlyAndLateViewers) {
  const auto early = View({});
  const auto gone = View({});
  hub_.RemoveViewer(gone.get());
  pb::NodeEvent outcome;
  outcome.mutable_outcome();
  hub_.Emit(outcome);
  hub_.End({});
  EXPECT_THAT(TakeAll(early), ElementsAre("outcome", "done"));
  EXPECT_TRUE(early->finished);
  const auto late = View({});
  EXPECT_THAT(TakeAll(late), ElementsAre("outcome", "done"));
  EXPECT_THAT(gone->events, IsEmpty());
  hub_.RemoveViewer(early.get());
  EXPECT_TRUE(hub_.HasViewers());
  hub_.RemoveViewer(late.get());
  EXPECT_FALSE(hub_.HasViewers());
}

TEST_F(EventHubTest, SendsSamplesOnlyToViewersThatAskForThem) {
  pb::AttachRequest asks;
  asks.mutable_samples()->set_every_ms(2000);
  const auto asking = View(asks);
  const auto other = View({});
  hub_.EmitSample(SampleAt(1));
  ASSERT_EQ(asking->events.size(), 1u);
  EXPECT_EQ(asking->events[0].sample().clock_us(), 1u);
  EXPECT_THAT(other->events, IsEmpty());
}

TEST_F(EventHubTest, KeepsNewestSampleForSlowViewer) {
  pb::AttachRequest asks;
  asks.mutable_samples()->set_every_ms(2000);
  const auto viewer = View(asks);
  for (uint64_t i = 1; i <= 1000; ++i) hub_.EmitSample(SampleAt(i));
  for (int i = 0; i < 3; ++i) hub_.OnViewerWritten(viewer.get(), true);
  ASSERT_EQ(viewer->events.size(), 2u);
  EXPECT_EQ(viewer->events[1].sample().clock_us(), 1000u);
}

TEST_F(EventHubTest, WantsShortestIntervalOfAllReceivers) {
  EXPECT_EQ(hub_.WantedSamples().every_ms(), 0u);
  pb::SampleRequest front_end;
  front_end.set_every_ms(15'000);
  hub_.Attach(RankSelection(pb::RankChoice()), std::make_shared<FakeSink>(), front_end);
  EXPECT_EQ(hub_.WantedSamples().every_ms(), 15'000u);
  pb::AttachRequest asks;
  asks.mutable_samples()->set_every_ms(2000);
  asks.mutable_samples()->set_last_lines(true);
  const auto viewer = View(asks);
  View({});
  EXPECT_EQ(hub_.WantedSamples().every_ms(), 2000u);
  EXPECT_TRUE(hub_.WantedSamples().last_lines());
  hub_.RemoveViewer(viewer.get());
  EXPECT_EQ(hub_.WantedSamples().every_ms(), 15'000u);
  EXPECT_FALSE(hub_.WantedSamples().last_lines());
  hub_.Detach();
  EXPECT_EQ(hub_.WantedSamples().every_ms(), 0u);
}

}  // namespace
}  // namespace dslaunch::event_hub_test
