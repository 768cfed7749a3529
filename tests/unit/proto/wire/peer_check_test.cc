#include "proto/wire/peer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "proto/wire/cause.h"

namespace dslaunch::peer_check_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Limits of a job of two nodes with two slots each.
constexpr PeerLimits kLimits = {.nodes = 2, .ranks = 4, .slots = 2, .attempts = 1};

std::string WhyOf(const Result<void>& result) { return result.ok() ? "" : result.error().message; }

pb::Cause Exit7() {
  pb::Cause cause = MakeCause(pb::Cause::WORKER_EXIT, 1, ExitCode::kInternal, "");
  cause.set_exit_code(7);
  cause.set_rank(3);
  return cause;
}

// Returns a valid event, as an agent sends it.
pb::NodeEvent GoodStarted() {
  pb::NodeEvent event;
  pb::Started& started = *event.mutable_started();
  started.set_attempt(1);
  started.set_first_rank(2);
  started.set_world_size(4);
  started.add_pids(4711);
  started.add_pids(4712);
  started.set_master_addr("10.0.0.1");
  started.set_master_port(29'500);
  *started.mutable_members() = ToNodeSet({0, 1});
  return event;
}

pb::NodeEvent GoodWorkerEnded() {
  pb::NodeEvent event;
  pb::WorkerEnded& ended = *event.mutable_worker_ended();
  ended.set_attempt(1);
  ended.set_rank(3);
  ended.set_local_rank(1);
  ended.set_exit_code(7);
  ended.set_last_lines("the reason");
  ended.set_log_path("/logs/rank_3/stderr.log");
  return event;
}

pb::NodeEvent GoodOutcome() {
  pb::NodeEvent event;
  event.mutable_outcome()->set_attempt(1);
  *event.mutable_outcome()->mutable_cause() = Exit7();
  return event;
}

pb::NodeEvent GoodDone() {
  pb::NodeEvent event;
  pb::NodeDone& done = *event.mutable_done();
  done.set_completed(true);
  done.set_teardown_complete(true);
  *done.mutable_cause() = Exit7();
  *done.mutable_members() = ToNodeSet({0, 1});
  done.add_victims(0);
  return event;
}

TEST(PeerCheckTest, AcceptsValidEventsUnchanged) {
  for (const pb::NodeEvent& good :
       {GoodStarted(), GoodWorkerEnded(), GoodOutcome(), GoodDone(), pb::NodeEvent()}) {
    pb::NodeEvent event = good;
    EXPECT_EQ(WhyOf(CheckNodeEvent(event, kLimits)), "");
    EXPECT_EQ(event.SerializeAsString(), good.SerializeAsString());
  }
}

TEST(PeerCheckTest, RejectsEventsWithImpossibleNumbers) {
  struct Case {
    pb::NodeEvent event;
    std::function<void(pb::NodeEvent&)> change;
    std::string says;
  };
  const Case cases[] = {
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_attempt(2); }, "attempt = 2"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_world_size(5); }, "world size = 5"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->add_pids(4713); },
       "number of ranks = 3, which is above 2"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_first_rank(3); },
       "last rank + 1 = 5, which is above 4"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_first_rank(UINT32_MAX); },
       "last rank + 1 = 4294967297"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_pids(0, -1); }, "pid = -1"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_master_addr("10.0.0.1\nx"); },
       "MASTER_ADDR"},
      {GoodStarted(), [](auto& e) { e.mutable_started()->set_master_port(65'536); },
       "MASTER_PORT = 65536"},
      {GoodStarted(),
       [](auto& e) {
         *e.mutable_started()->mutable_members() = ToNodeSet({0, 1, 2});
       },
       "node = 3, which is above 2"},
      {GoodStarted(),
       [](auto& e) {
         e.mutable_started()->mutable_members()->set_bounds(0, 2);
         e.mutable_started()->mutable_members()->set_bounds(1, 1);
       },
       "nodes that are not ascending"},
      {GoodWorkerEnded(), [](auto& e) { e.mutable_worker_ended()->set_rank(4); }, "rank = 4"},
      {GoodWorkerEnded(), [](auto& e) { e.mutable_worker_ended()->set_local_rank(2); },
       "local rank = 2"},
      {GoodWorkerEnded(), [](auto& e) { e.mutable_worker_ended()->set_exit_code(256); },
       "exit code = 256, which is not from 0 to 255"},
      {GoodWorkerEnded(), [](auto& e) { e.mutable_worker_ended()->set_signal(65); },
       "signal = 65, which is not from 0 to 64"},
      {GoodOutcome(), [](auto& e) { e.mutable_outcome()->mutable_cause()->set_exit_code(0); },
       "exit code of a failure = 0, which is not from 1 to 255"},
      {GoodOutcome(), [](auto& e) { e.mutable_outcome()->mutable_cause()->set_exit_code(256); },
       "exit code of a failure = 256"},
      {GoodOutcome(), [](auto& e) { e.mutable_outcome()->mutable_cause()->set_node_index(2); },
       "node of a cause = 2, which is not below 2"},
      {GoodOutcome(), [](auto& e) { e.mutable_outcome()->mutable_cause()->set_rank(-2); },
       "rank of a cause = -2"},
      {GoodOutcome(),
       [](auto& e) {
         e.mutable_outcome()->mutable_cause()->set_kind(static_cast<pb::Cause::Kind>(99));
       },
       "a cause of an unknown kind"},
      {GoodDone(), [](auto& e) { e.mutable_done()->set_victims(0, 4); }, "rank of a victim = 4"},
  };
  for (const Case& one : cases) {
    pb::NodeEvent event = one.event;
    one.change(event);
    EXPECT_THAT(WhyOf(CheckNodeEvent(event, kLimits)), HasSubstr(one.says));
  }
  pb::NodeEvent output;
  output.mutable_log()->set_rank(4);
  EXPECT_THAT(WhyOf(CheckNodeEvent(output, kLimits)), HasSubstr("rank = 4"));
  pb::NodeEvent status;
  status.mutable_status()->set_line(std::string(5'000, ' '));
  EXPECT_THAT(WhyOf(CheckNodeEvent(status, kLimits)), HasSubstr("status line = 5000"));
}

TEST(PeerCheckTest, RejectsFailureWithInvalidExitCode) {
  for (const int code : {0, -1, 256}) {
    pb::PrepareReply reply;
    reply.mutable_failure()->set_exit_code(code);
    EXPECT_THAT(WhyOf(CheckPrepareReply(reply)), HasSubstr("exit code of a failure = "));
    pb::CopyOutput copied;
    copied.mutable_failure()->set_exit_code(code);
    EXPECT_THAT(WhyOf(CheckCopyOutput(copied)), HasSubstr("exit code of a failure = "));
    pb::FailoverReply failover;
    failover.mutable_failure()->set_exit_code(code);
    EXPECT_THAT(WhyOf(CheckFailoverReply(failover)), HasSubstr("exit code of a failure = "));
  }
  pb::PrepareReply empty;
  EXPECT_EQ(WhyOf(CheckPrepareReply(empty)), "an empty answer");
  pb::FailoverReply empty_failover;
  EXPECT_EQ(WhyOf(CheckFailoverReply(empty_failover)), "an empty answer");
}

TEST(PeerCheckTest, EndpointsMustBeAddressAndPort) {
  const auto check = [](const std::string& endpoint) {
    pb::PrepareReply reply;
    reply.mutable_info()->set_job_dir("/jobs/1");
    reply.mutable_info()->add_rendezvous_endpoints(endpoint);
    return CheckPrepareReply(reply).ok();
  };
  for (const char* good : {"10.0.0.1:29500", "[fe80::1%eth0]:1", "127.0.0.1:65535"})
    EXPECT_TRUE(check(good)) << good;
  for (const char* bad : {"", "10.0.0.1", "10.0.0.1:", ":1", "10.0.0.1:x", "10.0.0.1:0",
                          "10.0.0.1:65536", "10.0.0.1:999999999999", "10.0.0.1;ls:1", "a b:1"})
    EXPECT_FALSE(check(bad)) << bad;
}

TEST(PeerCheckTest, CutsLongTextsAtAWholeCharacter) {
  pb::NodeEvent notice;
  std::string text = "x";
  while (text.size() < 2 * kMaxPeerTextBytes) text += "\xc3\xa4";
  notice.mutable_notice()->set_message(text);
  EXPECT_TRUE(CheckNodeEvent(notice, kLimits).ok());
  EXPECT_EQ(notice.notice().message(), text.substr(0, kMaxPeerTextBytes - 3) + "...");

  pb::NodeEvent ended = GoodWorkerEnded();
  ended.mutable_worker_ended()->set_last_lines(std::string(1 << 20, 'x') + "the reason");
  EXPECT_TRUE(CheckNodeEvent(ended, kLimits).ok());
  EXPECT_THAT(ended.worker_ended().last_lines(), EndsWith("the reason"));
  EXPECT_EQ(ended.worker_ended().last_lines().size(), kMaxLastLinesBytes);

  pb::NodeEvent done = GoodDone();
  for (int i = 0; i < 2 * kMaxPeerEntries; ++i) done.mutable_done()->add_left();
  done.mutable_done()->mutable_left(0)->set_command(std::string(1 << 20, 'x'));
  EXPECT_TRUE(CheckNodeEvent(done, kLimits).ok());
  EXPECT_EQ(done.done().left_size(), kMaxPeerEntries);
  EXPECT_EQ(done.done().left(0).command().size(), kMaxPeerTextBytes);

  pb::NodeInfo info;
  info.add_interfaces()->add_addresses(std::string(1 << 20, 'x'));
  CutTexts(info);
  EXPECT_EQ(info.interfaces(0).addresses(0).size(), kMaxPeerTextBytes);
}

TEST(PeerCheckTest, CutsOneExcessByteOrEntry) {
  pb::NodeEvent notice;
  notice.mutable_notice()->set_message(std::string(kMaxPeerTextBytes, 'x'));
  CutTexts(notice);
  EXPECT_EQ(notice.notice().message(), std::string(kMaxPeerTextBytes, 'x'));
  notice.mutable_notice()->set_message(std::string(kMaxPeerTextBytes + 1, 'x'));
  CutTexts(notice);
  EXPECT_EQ(notice.notice().message(), std::string(kMaxPeerTextBytes - 3, 'x') + "...");

  pb::NodeEvent done;
  for (int i = 0; i < kMaxPeerEntries + 1; ++i) done.mutable_done()->add_left();
  CutTexts(done);
  EXPECT_EQ(done.done().left_size(), kMaxPeerEntries);
}

TEST(PeerCheckTest, NeverCutsOutput) {
  pb::NodeEvent event;
  event.mutable_log()->set_data(std::string(256 << 10, 'x'));
  EXPECT_TRUE(CheckNodeEvent(event, kLimits).ok());
  EXPECT_EQ(event.log().data().size(), size_t{256} << 10);
}

TEST(PeerCheckTest, RejectsFailedResultWithExitCodeZero) {
  pb::JobSight sight;
  *sight.mutable_result()->mutable_cause() = Exit7();
  sight.mutable_result()->set_exit_code(7);
  EXPECT_TRUE(CheckJobSight(sight).ok());
  sight.mutable_result()->set_exit_code(0);
  EXPECT_THAT(WhyOf(CheckJobSight(sight)), HasSubstr("exit code of a failure = 0"));
}

TEST(PeerCheckTest, ChecksMessagesOfAgentsToRendezvous) {
  pb::AgentMessage join;
  join.mutable_join()->set_master_port(29'500);
  join.mutable_join()->set_address("10.0.0.2");
  EXPECT_EQ(WhyOf(CheckAgentMessage(join, kLimits)), "");
  join.mutable_join()->set_address("10.0.0.2 && ls");
  EXPECT_EQ(WhyOf(CheckAgentMessage(join, kLimits)), "an invalid address");
  join.mutable_join()->set_address("10.0.0.2");
  join.mutable_join()->set_link_port(65'536);
  EXPECT_EQ(WhyOf(CheckAgentMessage(join, kLimits)), "port = 65536, which is above 65535");

  pb::AgentMessage failed;
  *failed.mutable_worker_failed()->mutable_cause() = Exit7();
  EXPECT_EQ(WhyOf(CheckAgentMessage(failed, kLimits)), "");
  failed.mutable_worker_failed()->set_tolerated(true);
  EXPECT_EQ(WhyOf(CheckAgentMessage(failed, kLimits)),
            "a tolerated loss that no signal to a rank caused");
  failed.mutable_worker_failed()->mutable_cause()->set_kind(pb::Cause::WORKER_SIGNAL);
  EXPECT_EQ(WhyOf(CheckAgentMessage(failed, kLimits)), "");
  failed.mutable_worker_failed()->mutable_cause()->set_rank(-1);
  EXPECT_EQ(WhyOf(CheckAgentMessage(failed, kLimits)),
            "a tolerated loss that no signal to a rank caused");
  *failed.mutable_worker_failed()->mutable_cause() = Exit7();
  failed.mutable_worker_failed()->set_tolerated(false);
  failed.mutable_worker_failed()->mutable_cause()->set_exit_code(256);
  EXPECT_THAT(WhyOf(CheckAgentMessage(failed, kLimits)), HasSubstr("256"));

  pb::AgentMessage stop;
  *stop.mutable_stop()->mutable_cause() = Exit7();
  stop.mutable_stop()->mutable_cause()->set_message(std::string(1 << 20, 'x'));
  EXPECT_EQ(WhyOf(CheckAgentMessage(stop, kLimits)), "");
  EXPECT_EQ(stop.stop().cause().message().size(), kMaxPeerTextBytes);

  pb::AgentMessage heartbeat;
  for (int i = 0; i < 3; ++i) heartbeat.mutable_heartbeat()->add_ranks();
  EXPECT_THAT(WhyOf(CheckAgentMessage(heartbeat, kLimits)), HasSubstr("ranks in a heartbeat = 3"));
  heartbeat.clear_heartbeat();
  for (int i = 0; i < 3; ++i) heartbeat.mutable_heartbeat()->add_stillness();
  EXPECT_THAT(WhyOf(CheckAgentMessage(heartbeat, kLimits)), HasSubstr("ranks in a heartbeat = 3"));

  pb::AgentMessage lost;
  lost.mutable_rank_lost()->set_rank(kLimits.ranks - 1);
  EXPECT_EQ(WhyOf(CheckAgentMessage(lost, kLimits)), "");
  lost.mutable_rank_lost()->set_rank(kLimits.ranks);
  EXPECT_THAT(WhyOf(CheckAgentMessage(lost, kLimits)), HasSubstr("rank = 4"));
}

TEST(PeerCheckTest, ChecksMessagesOfRendezvousToAgents) {
  pb::RendezvousMessage message;
  message.set_attempt(1);
  pb::Assignment& ranks = *message.mutable_assignment();
  ranks.set_first_rank(2);
  ranks.set_world_size(4);
  ranks.set_node_rank(1);
  ranks.set_num_nodes(2);
  ranks.set_master_addr("10.0.0.1");
  ranks.set_master_port(29'500);
  *ranks.mutable_members() = ToNodeSet({0, 1});
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(message, kLimits)), "");
  ranks.set_first_rank(3);
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(message, kLimits)), "last rank + 1 = 5, which is above 4");
  ranks.set_first_rank(2);
  ranks.set_node_rank(2);
  EXPECT_THAT(WhyOf(CheckRendezvousMessage(message, kLimits)), HasSubstr("node = 2"));

  pb::RendezvousMessage end;
  end.mutable_end_rank()->set_rank(kLimits.ranks - 1);
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(end, kLimits)), "");
  end.mutable_end_rank()->set_rank(kLimits.ranks);
  EXPECT_THAT(WhyOf(CheckRendezvousMessage(end, kLimits)), HasSubstr("rank = 4"));

  pb::RendezvousMessage completed;
  *completed.mutable_completed()->mutable_cause() = Exit7();
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(completed, kLimits)), "");
  completed.mutable_completed()->mutable_cause()->set_exit_code(0);
  EXPECT_THAT(WhyOf(CheckRendezvousMessage(completed, kLimits)), HasSubstr("of a failure = 0"));

  pb::RendezvousMessage refused;
  refused.mutable_refused();
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(refused, kLimits)), "a refusal without a cause");

  pb::RendezvousMessage peers;
  pb::Peer& peer = *peers.mutable_peers()->add_peers();
  peer.set_endpoint("10.0.0.2:99");
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(peers, kLimits)), "");
  peer.set_endpoint("10.0.0.2");
  EXPECT_EQ(WhyOf(CheckRendezvousMessage(peers, kLimits)), "an endpoint that is not ADDRESS:PORT");
}

TEST(PeerCheckTest, ChecksVotesAndAnswers) {
  pb::Vote vote;
  vote.set_term(kMaxTerms);
  EXPECT_EQ(WhyOf(CheckVote(vote, kLimits)), "");
  vote.set_term(kMaxTerms + 1);
  EXPECT_THAT(WhyOf(CheckVote(vote, kLimits)), HasSubstr("term = "));
  pb::VoteAnswer answer;
  answer.add_rendezvous_endpoints("10.0.0.2:99");
  EXPECT_EQ(WhyOf(CheckVoteAnswer(answer)), "");
  answer.add_rendezvous_endpoints("10.0.0.2:0");
  EXPECT_EQ(WhyOf(CheckVoteAnswer(answer)), "an endpoint that is not ADDRESS:PORT");
}

}  // namespace
}  // namespace dslaunch::peer_check_test
