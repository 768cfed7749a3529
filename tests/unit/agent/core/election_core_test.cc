// Tests the election of a rendezvous by the nodes of a detached job: which node is the candidate,
// whose votes count, and when.
#include "agent/core/election_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

using ::testing::ElementsAre;

constexpr milliseconds kFence(20'000);
constexpr milliseconds kTerm(6'000);

// Returns the options of one of five nodes, of which node 0 hosted the rendezvous.
ElectionCore::Options OptionsOf(uint32_t own) {
  ElectionCore::Options options;
  options.own = own;
  options.voters = {0, 1, 2, 3, 4};
  options.majority = 3;
  options.num_nodes = 5;
  options.min_nodes = 2;
  options.max_restarts = 3;
  options.fence = kFence;
  options.term = kTerm;
  options.patience = milliseconds(30'000);
  return options;
}

class ElectionCoreTest : public ::testing::Test {
 protected:
  explicit ElectionCoreTest(uint32_t own = 1) : election_(OptionsOf(own)) {
    pb::Peers peers;
    for (uint32_t node = 0; node < 5; ++node) {
      pb::Peer& peer = *peers.add_peers();
      peer.set_node_index(node);
      peer.set_endpoint("10.0.0." + std::to_string(node + 1) + ":7");
    }
    election_.OnPeers(peers);
  }

  void Lose() {
    election_.OnLost({.host = 0,
                      .attempt = 2,
                      .restarts = 1,
                      .cause = MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "lost")},
                     now_);
    actions_.clear();
  }
  // Advances to the begin of the vote: the node's ranks have ended and the fence is over.
  void BeginToVote() {
    Lose();
    election_.OnRanksEnded();
    now_ += kFence;
    Tick();
  }
  void Take(ElectionActions actions) {
    for (ElectionAction& action : actions) actions_.push_back(std::move(action));
  }
  void Tick() { Take(election_.OnTick(now_)); }
  void Vote(uint32_t voter, uint64_t term, uint64_t attempt = 2, bool idle = false) {
    pb::Vote vote;
    vote.set_term(term);
    vote.set_attempt(attempt);
    vote.set_restarts(1);
    vote.set_idle(idle);
    Take(election_.OnVote(voter, vote, now_));
  }
  template <class Action>
  std::vector<Action> All() const {
    std::vector<Action> all;
    for (const ElectionAction& action : actions_) {
      if (const Action* one = std::get_if<Action>(&action)) all.push_back(*one);
    }
    return all;
  }
  std::vector<uint32_t> Candidates() const {
    std::vector<uint32_t> candidates;
    for (const auto& vote : All<agent_action::SendVote>()) candidates.push_back(vote.candidate);
    return candidates;
  }
  std::optional<pb::FailoverRequest> Opened() const {
    const auto all = All<agent_action::OpenRendezvous>();
    return all.empty() ? std::nullopt : std::optional(all.back().last);
  }

  Clock::time_point now_{std::chrono::hours(1)};
  ElectionCore election_;
  ElectionActions actions_;
};

class VoterTest : public ElectionCoreTest {
 protected:
  VoterTest() : ElectionCoreTest(3) {}
};

TEST_F(VoterTest, VotesAfterFenceAndEndOfRanks) {
  Lose();
  now_ += kFence;
  Tick();
  EXPECT_TRUE(actions_.empty());
  election_.OnRanksEnded();
  now_ -= milliseconds(1);
  Tick();
  EXPECT_TRUE(actions_.empty());
  now_ += milliseconds(1);
  Tick();
  EXPECT_THAT(Candidates(), ElementsAre(1));
  const auto vote = All<agent_action::SendVote>().front();
  EXPECT_EQ(vote.endpoint, "10.0.0.2:7");
  EXPECT_EQ(vote.vote.term(), 1);
  EXPECT_EQ(vote.vote.attempt(), 2);
  EXPECT_EQ(vote.vote.restarts(), 1);
}

TEST_F(VoterTest, TermsSkipLostHostAsCandidate) {
  BeginToVote();
  for (int i = 0; i < 4; ++i) {
    now_ += kTerm;
    Tick();
  }
  // In the third term, the candidate is the node itself, so it sends no vote.
  EXPECT_THAT(Candidates(), ElementsAre(1, 2, 4, 1));
}

TEST_F(VoterTest, SkipsCandidatesWithoutAddress) {
  pb::Peers peers;
  for (const uint32_t node : {2u, 3u}) {
    peers.add_peers()->set_node_index(node);
    peers.mutable_peers(peers.peers_size() - 1)->set_endpoint("10.0.0.3:7");
  }
  election_.OnPeers(peers);
  BeginToVote();
  EXPECT_THAT(Candidates(), ElementsAre(2));
}

TEST_F(VoterTest, FollowsElectedNode) {
  BeginToVote();
  pb::VoteAnswer answer;
  answer.set_term(1);
  answer.add_rendezvous_endpoints("10.0.0.2:99");
  Take(election_.OnAnswer(1, answer, now_));
  const auto follow = All<election_action::Follow>();
  ASSERT_EQ(follow.size(), 1);
  EXPECT_EQ(follow[0].next.rendezvous_node(), 1);
  EXPECT_THAT(follow[0].next.rendezvous_endpoints(), ElementsAre("10.0.0.2:99"));
  now_ += kTerm;
  Tick();
  EXPECT_THAT(Candidates(), ElementsAre(1));
}

TEST_F(VoterTest, IgnoresAnswersOfOtherCandidates) {
  BeginToVote();
  pb::VoteAnswer answer;
  answer.set_term(1);
  answer.add_rendezvous_endpoints("10.0.0.3:99");
  Take(election_.OnAnswer(2, answer, now_));
  EXPECT_TRUE(All<election_action::Follow>().empty());
}

TEST_F(VoterTest, EntersNewerTermFromAnswer) {
  BeginToVote();
  pb::VoteAnswer answer;
  answer.set_term(4);
  Take(election_.OnAnswer(1, answer, now_));
  EXPECT_THAT(Candidates(), ElementsAre(1, 4));
}

TEST_F(VoterTest, GivesUpWithoutMajority) {
  BeginToVote();
  for (int i = 0; i < 100 && All<election_action::GiveUp>().empty(); ++i) {
    now_ += kTerm;
    Tick();
  }
  EXPECT_EQ(All<election_action::GiveUp>().size(), 1);
}

TEST_F(ElectionCoreTest, OpensRendezvousWithMajorityOfAllVoters) {
  BeginToVote();
  Vote(2, 1);
  now_ += kTerm / 2;
  Tick();
  EXPECT_FALSE(Opened());  // two votes of the four remaining nodes are less than a majority of five
  Vote(3, 1);
  ASSERT_TRUE(Opened());
  EXPECT_EQ(Opened()->rendezvous_node(), 1);
  EXPECT_EQ(Opened()->restarts(), 2);
  EXPECT_EQ(Opened()->attempt(), 2);
  EXPECT_EQ(Opened()->cause().message(), "lost");
  EXPECT_THAT(Opened()->absent_nodes(), ElementsAre(0, 4));
}

TEST_F(ElectionCoreTest, WaitsHalfATermForRemainingVotes) {
  BeginToVote();
  Vote(2, 1);
  Vote(3, 1);
  EXPECT_FALSE(Opened());
  Vote(4, 1, 3);
  ASSERT_TRUE(Opened());
  EXPECT_EQ(Opened()->attempt(), 3);
  EXPECT_THAT(Opened()->absent_nodes(), ElementsAre(0));
}

TEST_F(ElectionCoreTest, SkipsNumbersOfAttemptsThatMayHaveBegun) {
  BeginToVote();
  Vote(2, 1, 2, /*idle=*/true);
  Vote(3, 1, 2, /*idle=*/true);
  Vote(4, 1);
  // Nodes 0, 2 and 3 were a majority, so two restarts may have happened, and each node may have
  // joined once more.
  EXPECT_EQ(Opened()->attempt(), 2 + 2 + 3);
}

TEST_F(ElectionCoreTest, DropsVoteWhenItsConnectionEnds) {
  BeginToVote();
  Vote(2, 1);
  election_.OnVoterGone(2);
  Vote(3, 1);
  now_ += kTerm / 2;
  Tick();
  EXPECT_FALSE(Opened());
}

TEST_F(ElectionCoreTest, KeepsVotesThatArriveBeforeFenceEnds) {
  Lose();
  for (const uint32_t voter : {2u, 3u, 4u}) Vote(voter, 1);
  EXPECT_TRUE(actions_.empty());
  election_.OnRanksEnded();
  now_ += kFence;
  Tick();
  EXPECT_TRUE(Opened());
}

TEST_F(ElectionCoreTest, IgnoresVotesWhileItsRendezvousLives) {
  for (const uint32_t voter : {2u, 3u, 4u}) Vote(voter, 1);
  Tick();
  EXPECT_TRUE(actions_.empty());
}

TEST_F(ElectionCoreTest, AnswersVotesOfOlderTermsWithNewTerm) {
  BeginToVote();
  Vote(3, 6);  // node 3 votes for node 1 in the later term 6 too
  actions_.clear();
  Vote(2, 1);
  const auto answers = All<agent_action::AnswerVote>();
  ASSERT_EQ(answers.size(), 1);
  EXPECT_EQ(answers[0].voter, 2);
  EXPECT_EQ(answers[0].answer.term(), 6);
  EXPECT_TRUE(answers[0].answer.rendezvous_endpoints().empty());
}

TEST_F(ElectionCoreTest, AnswersLateVotersWithEndpoints) {
  BeginToVote();
  Vote(2, 1);
  Vote(3, 1);
  Vote(4, 1);
  Take(election_.OnOpened(std::vector<std::string>{"10.0.0.2:99"}));
  EXPECT_EQ(All<election_action::Follow>().size(), 1);
  actions_.clear();
  Vote(0, 6);
  const auto answers = All<agent_action::AnswerVote>();
  ASSERT_EQ(answers.size(), 1);
  EXPECT_THAT(answers[0].answer.rendezvous_endpoints(), ElementsAre("10.0.0.2:99"));
}

TEST_F(ElectionCoreTest, VotesForNextCandidateIfRendezvousCannotOpen) {
  BeginToVote();
  for (const uint32_t voter : {2u, 3u, 4u}) Vote(voter, 1);
  Take(election_.OnOpened(Error{ExitCode::kUnavailable, "the port is taken"}));
  Tick();
  EXPECT_THAT(Candidates(), ElementsAre(2));
}

TEST_F(ElectionCoreTest, GivesUpWithoutRestartLeft) {
  BeginToVote();
  pb::Vote vote;
  vote.set_term(1);
  vote.set_restarts(3);
  for (const uint32_t voter : {2u, 3u, 4u}) Take(election_.OnVote(voter, vote, now_));
  EXPECT_FALSE(Opened());
  EXPECT_EQ(All<election_action::GiveUp>().size(), 1);
}

}  // namespace
}  // namespace dslaunch
