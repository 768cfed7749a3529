#include "agent/logs/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/agent/logs/fake_sink.h"

namespace dslaunch::event_stream_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string Word(const pb::NodeEvent& event) {
  if (event.has_notice()) return event.notice().message();
  if (event.has_status())
    return "status " + std::to_string(event.status().rank()) + event.status().line();
  if (event.has_log() && event.log().stands_still())
    return (event.log().is_stderr() ? "err stands still at " : "out stands still at ") +
           std::to_string(event.log().offset());
  if (event.has_log()) return (event.log().is_stderr() ? "err " : "out ") + event.log().data();
  return event.has_done() ? "done" : "?";
}

class EventStreamTest : public ::testing::Test {
 protected:
  // Accepts all new events as the front end and returns them.
  std::vector<std::string> TakeAll() {
    for (size_t i = taken_; i < sink_->events.size(); ++i) stream_.OnWritten(true);
    std::vector<std::string> words;
    for (; taken_ < sink_->events.size(); ++taken_) words.push_back(Word(sink_->events[taken_]));
    return words;
  }

  asio::io_context loop_;
  std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
  EventStream stream_{loop_};
  TempDir dir_;
  size_t taken_ = 0;
};

TEST_F(EventStreamTest, KeepsEventsInOrderUntilAttached) {
  stream_.Emit(Notice("a"));
  stream_.Emit(Notice("b"));
  stream_.Attach(sink_);
  EXPECT_THAT(TakeAll(), ElementsAre("a", "b"));
}

TEST_F(EventStreamTest, WritesOneEventAtATime) {
  stream_.Attach(sink_);
  for (int i = 0; i < 10; ++i) stream_.Emit(Notice("x"));
  EXPECT_EQ(sink_->events.size(), 1u);
}

TEST_F(EventStreamTest, KeepsOnlyNewestStatusOfEachRankWhileLagging) {
  stream_.Attach(sink_);
  stream_.Emit(Notice("first"));
  for (int i = 0; i < 1000; ++i) {
    stream_.EmitStatus(0, "a" + std::to_string(i));
    stream_.EmitStatus(1, "b" + std::to_string(i));
    if (i == 500) stream_.EmitStatus(0, "an evaluation", StatusKind::kEvaluation);
  }
  EXPECT_THAT(TakeAll(),
              ElementsAre("first", "status 0a999", "status 0an evaluation", "status 1b999"));
}

TEST_F(EventStreamTest, EndFollowsAllOutput) {
  stream_.Follow({1, 3, 1, false}, dir_.Write("out", "hello\n"));
  stream_.Follow({1, 3, 1, true}, dir_.Write("err", "oops\n"));
  stream_.Attach(sink_);
  stream_.End(pb::NodeDone());
  stream_.Emit(Notice("late"));
  EXPECT_FALSE(stream_.ended());
  const std::vector<std::string> words = TakeAll();
  EXPECT_THAT(words, UnorderedElementsAre("out hello\n", "late", "err oops\n", "done"));
  EXPECT_EQ(words.back(), "done");
  EXPECT_TRUE(sink_->finished);
  EXPECT_EQ(sink_->events[0].log().rank(), 3u);
  EXPECT_EQ(sink_->events[0].log().local_rank(), 1u);
}

TEST_F(EventStreamTest, ReportsUnfinishedLineOnceAfterAPause) {
  stream_.Follow({1, 0, 0, false}, dir_.Write("out", "line\nname: "));
  stream_.Follow({1, 0, 0, true}, dir_.Write("err", "line\n"));
  stream_.Attach(sink_);
  TakeAll();
  const auto run = [&] {
    loop_.restart();
    loop_.run_for(2 * EventStream::kStandstillDelay);
    return TakeAll();
  };
  EXPECT_THAT(run(), ElementsAre("out stands still at 11"));
  EXPECT_THAT(run(), IsEmpty());
  dir_.Write("out", "line\nname: me");
  EXPECT_THAT(run(), ElementsAre("out me"));
  EXPECT_THAT(run(), ElementsAre("out stands still at 13"));
}

TEST_F(EventStreamTest, ReportsNoPauseOfAnEarlierAttempt) {
  stream_.Follow({1, 0, 0, false}, dir_.Write("out", "kill"));
  stream_.Attach(sink_);
  TakeAll();
  stream_.EndAttempt();
  stream_.Follow({2, 0, 0, false}, dir_.Write("out2", "again\n"));
  loop_.run_for(2 * EventStream::kStandstillDelay);
  EXPECT_THAT(TakeAll(), ElementsAre("out again\n"));
}

TEST_F(EventStreamTest, ReportsNoPauseBeforeAllOutputIsSent) {
  stream_.Follow({1, 0, 0, false}, dir_.Write("out", "na"));
  stream_.Attach(sink_);
  ASSERT_EQ(sink_->events.size(), 1u);  // the event "na", which the front end has not accepted yet
  loop_.run_for(2 * EventStream::kStandstillDelay);
  dir_.Write("out", "name\n");
  EXPECT_THAT(TakeAll(), ElementsAre("out na", "out me\n"));
}

TEST_F(EventStreamTest, SendsNothingAfterAFailedWrite) {
  stream_.Attach(sink_);
  stream_.Emit(Notice("a"));
  stream_.OnWritten(false);
  stream_.Emit(Notice("b"));
  stream_.EmitStatus(0, "c");
  stream_.End(pb::NodeDone());
  EXPECT_EQ(sink_->events.size(), 1u);
  EXPECT_FALSE(sink_->finished);
}

}  // namespace
}  // namespace dslaunch::event_stream_test
