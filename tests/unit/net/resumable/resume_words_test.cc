#include "net/resumable/resume_words.h"

#include <gtest/gtest.h>

namespace dslaunch::resume_words_test {
namespace {

TEST(ResumeWordsTest, ParsesFormattedMessages) {
  const Result<ResumeTicket> ticket = DrawTicket();
  ASSERT_TRUE(ticket.ok());
  const std::string text = FormatTicket(*ticket);
  EXPECT_EQ(text.size(), kTicketBytes);
  const std::optional<ResumeTicket> read = ParseTicket(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->socket, ticket->socket);
  EXPECT_EQ(read->secret, ticket->secret);
  const std::string asked = FormatRequest({ticket->secret, 123'456'789'012});
  EXPECT_EQ(asked.size(), kRequestBytes);
  const std::optional<StreamResume> request = ParseRequest(asked);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->secret, ticket->secret);
  EXPECT_EQ(request->received, 123'456'789'012u);
  EXPECT_EQ(FormatAnswer(UINT64_MAX).size(), kAnswerBytes);
  EXPECT_EQ(ParseAnswer(FormatAnswer(UINT64_MAX)), UINT64_MAX);
}

TEST(ResumeWordsTest, TicketsAreUnique) {
  const Result<ResumeTicket> a = DrawTicket();
  const Result<ResumeTicket> b = DrawTicket();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->socket, b->socket);
  EXPECT_NE(a->secret, b->secret);
  EXPECT_NE(a->socket, a->secret);
}

TEST(ResumeWordsTest, RejectsMalformedMessages) {
  const std::string ticket = FormatTicket(*DrawTicket());
  EXPECT_FALSE(ParseTicket(ticket + "0"));
  EXPECT_FALSE(ParseTicket(ticket.substr(1)));
  EXPECT_FALSE(ParseTicket("X" + ticket.substr(1)));
  EXPECT_FALSE(ParseTicket(ticket.substr(0, ticket.size() - 1) + "G"));
  EXPECT_FALSE(ParseTicket(""));
  EXPECT_FALSE(ParseRequest(ticket));
  EXPECT_FALSE(ParseAnswer("C00000000000000"));
  EXPECT_FALSE(ParseAnswer("C000000000000000-"));
}

TEST(ResumeWordsTest, IsSameSecretComparesTheWholeSecret) {
  EXPECT_TRUE(IsSameSecret("abc", "abc"));
  EXPECT_FALSE(IsSameSecret("abc", "abd"));
  EXPECT_FALSE(IsSameSecret("abc", "ab"));
  EXPECT_FALSE(IsSameSecret("abc", ""));
}

}  // namespace
}  // namespace dslaunch::resume_words_test
