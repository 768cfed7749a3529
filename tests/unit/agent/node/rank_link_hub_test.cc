// Tests agents of one job on this machine, with sockets that act as their ranks.
#include "agent/node/rank_link_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <map>
#include <thread>

#include "base/os/pass_fd.h"
#include "net/certificate_authority.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::rank_link_hub_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Kind = RankLinkMessage::Kind;

constexpr milliseconds kWait(10'000);

class RankLinkHubTest : public ::testing::Test {
 protected:
  RankLinkHubTest() : authority_(*CertificateAuthority::Create("job")) {}

  void Open(uint32_t nodes, bool with_certificates = true) {
    for (uint32_t node = 0; node < nodes; ++node) {
      pb::PrepareRequest prepare;
      prepare.mutable_job()->set_job_id("job");
      prepare.set_node_index(node);
      prepare.mutable_job()->set_local(true);
      if (with_certificates) *prepare.mutable_credentials() = *authority_.Issue(node);
      const std::string folder = dir_ / std::to_string(node);
      ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
      auto hub = RankLinkHub::Open(loop_, prepare, nodes, folder,
                                   [this](const std::string& line) { lines_.push_back(line); });
      ASSERT_TRUE(hub.ok()) << hub.error().message;
      hubs_.push_back(*std::move(hub));
    }
    std::vector<NodeSlots> slots;
    for (uint32_t node = 0; node < nodes; ++node) slots.push_back({node, 2});
    for (const auto& hub : hubs_) {
      hub->BeginAttempt({1, NumberRanks(slots),
                         nodes > 1 ? "127.0.0.1:" + std::to_string(hubs_[0]->port()) : ""});
    }
  }

  UniqueFd Connect(uint32_t node) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, hubs_[node]->socket_path().c_str());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  struct Received {
    RankLinkMessage message;
    UniqueFd fd;
  };
  // Runs the agents and returns the next message on a rank's socket. Throws std::runtime_error on
  // timeout, or if the agent closes the socket.
  Received Receive(const UniqueFd& rank) {
    Received received;
    std::string bytes(kRankLinkMessageBytes, '\0');
    size_t have = 0;
    for (const Deadline deadline = Deadline::After(kWait); have < bytes.size();) {
      if (deadline.Expired()) throw std::runtime_error("nothing comes");
      loop_.restart();
      loop_.poll();
      pollfd ready = {rank.get(), POLLIN, 0};
      if (::poll(&ready, 1, 5) <= 0) continue;
      const long got =
          ReceiveWithFd(rank.get(), bytes.data() + have, bytes.size() - have, received.fd);
      if (got <= 0) throw std::runtime_error("the agent has closed it");
      have += static_cast<size_t>(got);
    }
    received.message = *DecodeRankLink(bytes);
    return received;
  }

  UniqueFd Arrive(uint32_t rank) {
    UniqueFd fd = Connect(rank / 2);
    RankLinkMessage hello;
    hello.from = rank;
    hello.attempt = 1;
    Send(fd, hello);
    places_[rank] = Receive(fd).message;
    EXPECT_EQ(places_[rank].kind, Kind::kWelcome);
    return fd;
  }
  static void Send(const UniqueFd& rank, const RankLinkMessage& message) {
    ASSERT_TRUE(SendWithFd(rank.get(), EncodeRankLink(message), -1));
  }
  void Dial(const UniqueFd& rank, uint32_t to) {
    RankLinkMessage dial;
    dial.kind = Kind::kDial;
    dial.to = to;
    dial.node = places_[to].node;
    dial.text = places_[to].text;
    dial.label = "group";
    Send(rank, dial);
  }
  // Expects that bytes written to either end arrive at the other end.
  void ExpectConnected(const UniqueFd& a, const UniqueFd& b) {
    for (const auto& [from, to] : {std::pair(a.get(), b.get()), std::pair(b.get(), a.get())}) {
      ASSERT_EQ(::send(from, "hello", 5, MSG_NOSIGNAL), 5);
      char text[5];
      pollfd ready = {to, POLLIN, 0};
      ASSERT_EQ(::poll(&ready, 1, static_cast<int>(kWait.count())), 1);
      ASSERT_EQ(::recv(to, text, sizeof text, MSG_WAITALL), 5);
      EXPECT_EQ(std::string(text, 5), "hello");
    }
  }

  TempDir dir_;
  CertificateAuthority authority_;
  asio::io_context loop_;
  std::vector<std::string> lines_;
  std::vector<std::unique_ptr<RankLinkHub>> hubs_;
  std::map<uint32_t, RankLinkMessage> places_;  // places of the ranks, by rank
};

TEST_F(RankLinkHubTest, ConnectsRanksOfOneNodeWithoutPort) {
  Open(1);
  EXPECT_EQ(hubs_[0]->port(), 0);
  const UniqueFd rank0 = Arrive(0), rank1 = Arrive(1);
  Dial(rank0, 1);
  const Received own = Receive(rank0), other = Receive(rank1);
  EXPECT_EQ(other.message.from, 0u);
  EXPECT_EQ(other.message.label, "group");
  ExpectConnected(own.fd, other.fd);
}

TEST_F(RankLinkHubTest, ConnectsRanksOfTwoNodesByTls) {
  Open(2);
  const UniqueFd rank0 = Arrive(0), rank3 = Arrive(3);
  EXPECT_THAT(places_[3].text, StartsWith("127.0.0.1:"));
  Dial(rank0, 3);
  {
    const Received own = Receive(rank0), other = Receive(rank3);
    EXPECT_EQ(own.message.to, 3u);
    EXPECT_EQ(other.message.from, 0u);
    ExpectConnected(own.fd, other.fd);
  }
  places_[0].text.clear();  // the agents know the address of rank 0 themselves
  Dial(rank3, 0);
  const Received own = Receive(rank3), other = Receive(rank0);
  EXPECT_EQ(other.message.from, 3u);
  ExpectConnected(own.fd, other.fd);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(RankLinkHubTest, RefusesStrangerAndKeepsServingRanks) {
  Open(2);
  UniqueFd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(hubs_[1]->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  RankLinkMessage forged;
  forged.kind = Kind::kDial;
  forged.to = 3;
  forged.attempt = 1;
  forged.label = "group";
  Send(stranger, forged);
  const UniqueFd rank0 = Arrive(0), rank3 = Arrive(3);
  Dial(rank0, 3);
  const Received own = Receive(rank0), other = Receive(rank3);
  ExpectConnected(own.fd, other.fd);
  EXPECT_THAT(lines_, Contains(HasSubstr("it does not speak TLS")));
}

TEST_F(RankLinkHubTest, RefusesNodeThatClaimsRankOfAnother) {
  Open(3);
  const UniqueFd rank2 = Arrive(2);
  const auto as_node_2 = *NodeDialer::Start("job", *authority_.Issue(2));
  std::promise<Result<UniqueFd>> dialed;
  as_node_2->Dial({"127.0.0.1:" + std::to_string(hubs_[1]->port())}, 1, kWait,
                  [&](Result<UniqueFd> plain) { dialed.set_value(std::move(plain)); });
  const Result<UniqueFd> plain = dialed.get_future().get();
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  RankLinkMessage forged;
  forged.kind = Kind::kDial;
  forged.from = 0;
  forged.to = 2;
  forged.attempt = 1;
  forged.label = "group";
  Send(*plain, forged);
  for (const Deadline deadline = Deadline::After(kWait); lines_.empty() && !deadline.Expired();) {
    loop_.restart();
    loop_.poll();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(lines_, Contains(HasSubstr("node 2 says that it has rank 0")));
  const UniqueFd rank0 = Arrive(0);
  Dial(rank0, 2);
  const Received own = Receive(rank0), other = Receive(rank2);
  EXPECT_EQ(other.message.from, 0u);
  ExpectConnected(own.fd, other.fd);
}

TEST_F(RankLinkHubTest, ClosesLocalProcessThatIsNotARank) {
  Open(1);
  const UniqueFd process = Connect(0);
  RankLinkMessage hello;
  hello.from = 5;
  hello.attempt = 1;
  Send(process, hello);
  EXPECT_THROW(Receive(process), std::runtime_error);
  EXPECT_THAT(lines_, Contains(HasSubstr("rank 5")));
}

TEST_F(RankLinkHubTest, ReportsNodeThatCannotBeReached) {
  Open(2);
  const UniqueFd rank0 = Arrive(0);
  places_[3] = places_[0];
  Dial(rank0, 3);  // the address is this node's own
  const Received failed = Receive(rank0);
  EXPECT_EQ(failed.message.kind, Kind::kFailed);
  EXPECT_THAT(failed.message.text, HasSubstr("rank 3 runs on node 1"));
}

}  // namespace
}  // namespace dslaunch::rank_link_hub_test
