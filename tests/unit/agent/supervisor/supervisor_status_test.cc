#include "agent/supervisor/supervisor_status.h"

#include <gtest/gtest.h>

#include <random>

#include "proto/contract/status_line.h"

namespace dslaunch::supervisor_status_test {
namespace {

TEST(StatusLines, BuffersIncompleteLines) {
  StatusLines lines;
  EXPECT_EQ(lines.Feed("{\"event\":"), "");
  EXPECT_EQ(lines.Feed("\"ready\"}\n{"), "{\"event\":\"ready\"}\n");
  EXPECT_EQ(lines.Feed("}\n\nx\ny"), "{}\n\nx\n");
}

TEST(StatusLines, DropsOnlyLinesThatAreTooLong) {
  const std::string longest(kMaxStatusLineBytes, 'a');
  StatusLines lines;
  EXPECT_EQ(lines.Feed(longest + "\n"), longest + "\n");
  EXPECT_EQ(lines.Feed(longest + "b\nnext\n"), "next\n");
  EXPECT_EQ(lines.Feed(longest), "");
  EXPECT_EQ(lines.Feed("b"), "");
  EXPECT_EQ(lines.Feed(longest), "");
  EXPECT_EQ(lines.Feed("end\nnext\n"), "next\n");
}

// The lines must not depend on how the bytes are split into reads.
TEST(StatusLines, LinesDoNotDependOnReadSizes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::string input, expected;
  for (int i = 0; i < 200; ++i) {
    const size_t length = random() % (2 * kMaxStatusLineBytes);
    const std::string line(length, static_cast<char>('a' + i % 26));
    input += line + "\n";
    if (length <= kMaxStatusLineBytes) expected += line + "\n";
  }
  StatusLines lines;
  std::string got;
  for (size_t at = 0; at < input.size();) {
    const size_t bytes = 1 + random() % 5000;
    got += lines.Feed(std::string_view(input).substr(at, bytes));
    at += bytes;
  }
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace dslaunch::supervisor_status_test
