#include "cli/transport/ssh/ssh_agent.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <random>

namespace dslaunch::ssh_agent_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Comments(const std::vector<AgentKey>& keys) {
  std::vector<std::string> comments;
  for (const AgentKey& key : keys) comments.push_back(key.comment);
  return comments;
}

const std::vector<AgentKey> kKeys = {{"A", "a"}, {"B", "b"}, {"C", "c"}};

TEST(ChooseAgentKeysTest, PutsListedKeysFirst) {
  EXPECT_THAT(Comments(ChooseAgentKeys(kKeys, {}, false)), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Comments(ChooseAgentKeys(kKeys, {"X", "C"}, false)), ElementsAre("c", "a", "b"));
  EXPECT_THAT(Comments(ChooseAgentKeys(kKeys, {"C", "A"}, true)), ElementsAre("c", "a"));
  EXPECT_THAT(Comments(ChooseAgentKeys(kKeys, {}, true)), IsEmpty());
}

const std::string kAnswer("\x0c\0\0\0\2\0\0\0\3abc\0\0\0\4key1\0\0\0\1d\0\0\0\0", 29);

TEST(ParseAgentKeysTest, ReadsListOfKeys) {
  const std::vector<AgentKey> keys = ParseAgentKeys(kAnswer);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].blob, "abc");
  EXPECT_EQ(keys[0].comment, "key1");
  EXPECT_EQ(keys[1].blob, "d");
}

TEST(ParseAgentKeysTest, ReturnsNoKeysIfMalformed) {
  for (size_t size = 0; size < kAnswer.size(); ++size)
    EXPECT_THAT(ParseAgentKeys(kAnswer.substr(0, size)), IsEmpty());
  std::minstd_rand random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string answer = kAnswer;
    for (int changes = 0; changes < 3; ++changes)
      answer[random() % answer.size()] = static_cast<char>(random());
    ParseAgentKeys(answer);
  }
}

TEST(AgentRelayTest, ServesChosenKeysAndForwardsSignatures) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd agent(ends[1]);
  AgentRelay relay(UniqueFd{ends[0]}, {{"abc", "key1"}, {"d", ""}},
                   Deadline::After(milliseconds(10'000)));
  const UniqueFd client = relay.TakeFd();
  const auto ask = [&client](const std::string& request) {
    ::send(client.get(), request.data(), request.size(), 0);
  };
  const auto read = [](int fd, size_t size) {
    std::string bytes(size, '\0');
    EXPECT_EQ(::recv(fd, bytes.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
    return bytes;
  };
  ask(std::string("\0\0\0\1\x0b", 5));
  EXPECT_EQ(read(client.get(), 4 + kAnswer.size()).substr(4), kAnswer);
  const std::string sign("\0\0\0\4\x0dsig", 8);
  ask(sign);
  EXPECT_EQ(read(agent.get(), sign.size()), sign);
  const std::string signature("\0\0\0\3\x0eOK", 7);
  ::send(agent.get(), signature.data(), signature.size(), 0);
  EXPECT_EQ(read(client.get(), signature.size()), signature);
  ask(std::string("\0\0\0\1\x13", 5));  // requests the removal of all identities
  EXPECT_EQ(read(client.get(), 5), std::string("\0\0\0\1\5", 5));
}

TEST(ListAgentKeysTest, FailsAtDeadlineIfAgentIsSilent) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]), agent(ends[1]);
  const auto start = Clock::now();
  EXPECT_FALSE(ListAgentKeys(ours.get(), Deadline::After(milliseconds(100))).ok());
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
}

}  // namespace
}  // namespace dslaunch::ssh_agent_test
