// Tests votes between the agents of two nodes of one job, over real connections.
#include "agent/node/election_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <vector>

#include "net/certificate_authority.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::election_link_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ElectionLinkTest : public ::testing::Test {
 protected:
  struct Agent {
    std::unique_ptr<RankLinkHub> hub;
    std::vector<std::pair<uint32_t, pb::Vote>> votes;
    std::vector<uint32_t> gone;
    std::vector<std::pair<uint32_t, pb::VoteAnswer>> answers;
    std::unique_ptr<ElectionLink> link;  // last member, because it uses the hub
  };

  ElectionLinkTest() {
    auto authority = *CertificateAuthority::Create("job");
    for (uint32_t node = 0; node < agents_.size(); ++node) {
      pb::PrepareRequest prepare;
      prepare.mutable_job()->set_job_id("job");
      prepare.set_node_index(node);
      prepare.mutable_job()->set_local(true);
      *prepare.mutable_credentials() = *authority.Issue(node);
      const std::string folder = dir_ / std::to_string(node);
      EXPECT_EQ(::mkdir(folder.c_str(), 0700), 0);
      Agent& agent = agents_[node];
      agent.hub = *RankLinkHub::Open(loop_, prepare, 2, folder,
                                     [this](const std::string& line) { lines_.push_back(line); });
      agent.link = std::make_unique<ElectionLink>(
          loop_, *agent.hub, PeerLimits(),
          ElectionLink::Handlers{
              .on_vote = [&agent](uint32_t voter,
                                  const pb::Vote& vote) { agent.votes.emplace_back(voter, vote); },
              .on_voter_gone = [&agent](uint32_t voter) { agent.gone.push_back(voter); },
              .on_answer =
                  [&agent](uint32_t candidate, const pb::VoteAnswer& answer) {
                    agent.answers.emplace_back(candidate, answer);
                  },
              .on_line = [this](const std::string& line) { lines_.push_back(line); }});
    }
  }

  void SendVote(uint64_t term) {
    agent_action::SendVote send;
    send.candidate = 1;
    send.endpoint = "127.0.0.1:" + std::to_string(agents_[1].hub->port());
    send.limit = milliseconds(10'000);
    send.vote.set_term(term);
    send.vote.set_attempt(4);
    agents_[0].link->SendVote(send);
  }
  // Runs the agents until `done` returns true. Fails after 10 s.
  void RunUntil(const std::function<bool()>& done) {
    for (const Deadline deadline = Deadline::After(milliseconds(10'000)); !done();) {
      ASSERT_FALSE(deadline.Expired()) << ::testing::PrintToString(lines_);
      loop_.restart();
      loop_.run_for(milliseconds(5));
    }
  }

  TempDir dir_;
  asio::io_context loop_;
  std::vector<std::string> lines_;
  std::array<Agent, 2> agents_;
};

TEST_F(ElectionLinkTest, DeliversVoteWithCertifiedNodeAndItsAnswer) {
  SendVote(7);
  RunUntil([this] { return !agents_[1].votes.empty(); });
  EXPECT_EQ(agents_[1].votes[0].first, 0);
  EXPECT_EQ(agents_[1].votes[0].second.term(), 7);
  EXPECT_EQ(agents_[1].votes[0].second.attempt(), 4);
  agent_action::AnswerVote answer;
  answer.voter = 0;
  answer.answer.set_term(7);
  answer.answer.add_rendezvous_endpoints("10.0.0.2:99");
  agents_[1].link->AnswerVote(answer);
  RunUntil([this] { return !agents_[0].answers.empty() && !agents_[1].gone.empty(); });
  EXPECT_EQ(agents_[0].answers[0].first, 1);
  EXPECT_EQ(agents_[0].answers[0].second.rendezvous_endpoints(0), "10.0.0.2:99");
}

TEST_F(ElectionLinkTest, ReportsWithdrawnVote) {
  SendVote(7);
  RunUntil([this] { return !agents_[1].votes.empty(); });
  agents_[0].link->WithdrawVote();
  RunUntil([this] { return !agents_[1].gone.empty(); });
  EXPECT_EQ(agents_[1].gone[0], 0);
}

TEST_F(ElectionLinkTest, ClosesConnectionOnInvalidVote) {
  SendVote(kMaxTerms + 1);
  RunUntil([this] { return !agents_[1].gone.empty(); });
  EXPECT_TRUE(agents_[1].votes.empty());
  EXPECT_THAT(lines_, Contains(HasSubstr("node 0 sent term")));
}

}  // namespace
}  // namespace dslaunch::election_link_test
