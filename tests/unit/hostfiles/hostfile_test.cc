#include "hostfiles/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>
#include <random>
#include <string>

namespace dslaunch::hostfile_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct GoodLine {
  std::string line, name, user, host;
  int port, slots;
};

TEST(ParseHostfile, AcceptsAllFormsOfNodeNames) {
  const GoodLine cases[] = {
      {"node1 slots=2", "node1", "", "node1", 0, 2},
      {"  node1\t \tslots=2  ", "node1", "", "node1", 0, 2},
      {"node1 slots=2\r", "node1", "", "node1", 0, 2},
      {"node1 slots=002", "node1", "", "node1", 0, 2},
      {"node1 slots=4096", "node1", "", "node1", 0, 4096},
      {"node1 slots=2 # two GPUs", "node1", "", "node1", 0, 2},
      {"node1 slots=2#two GPUs", "node1", "", "node1", 0, 2},
      {"10.0.0.7 slots=8", "10.0.0.7", "", "10.0.0.7", 0, 8},
      {"gpu_1.cluster-a.example slots=8", "gpu_1.cluster-a.example", "", "gpu_1.cluster-a.example",
       0, 8},
      {"h:2222 slots=1", "h:2222", "", "h", 2222, 1},
      {"alice@h:2222 slots=1", "alice@h:2222", "alice", "h", 2222, 1},
      {"alice@corp.example@h slots=1", "alice@corp.example@h", "alice@corp.example", "h", 0, 1},
      {"::1 slots=1", "::1", "", "::1", 0, 1},
      {"[::1] slots=1", "[::1]", "", "::1", 0, 1},
      {"[::1]:22 slots=1", "[::1]:22", "", "::1", 22, 1},
      {"bob@[2001:db8::7]:65535 slots=1", "bob@[2001:db8::7]:65535", "bob", "2001:db8::7", 65535,
       1},
      {"fe80::1%eth0 slots=1", "fe80::1%eth0", "", "fe80::1%eth0", 0, 1},
  };
  for (const GoodLine& c : cases) {
    SCOPED_TRACE(c.line);
    const auto hosts = ParseHostfile(c.line, "hf");
    ASSERT_TRUE(hosts.ok()) << hosts.error().message;
    ASSERT_EQ(hosts->size(), 1u);
    const Host& host = hosts->front();
    EXPECT_EQ(host.name, c.name);
    EXPECT_EQ(host.user, c.user);
    EXPECT_EQ(host.host, c.host);
    EXPECT_EQ(host.port, c.port);
    EXPECT_EQ(host.slots, c.slots);
    EXPECT_EQ(host.line, 1);
  }
}

TEST(ParseHostfile, ReadsSpareAfterSlots) {
  const auto hosts = ParseHostfile(
      "a slots=1\nb slots=2 spare=true # b\nc slots=1\tspare=true\nd slots=1 spare=false", "hf");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  std::vector<bool> spare;
  for (const Host& host : *hosts) spare.push_back(host.spare);
  EXPECT_EQ(spare, (std::vector<bool>{false, true, true, false}));
}

TEST(ParseHostfile, KeepsOrderAndLineNumbersPastBlanksAndComments) {
  const auto hosts = ParseHostfile(
      "\xef\xbb\xbf# cluster\r\n\r\nb slots=1\r\n \t \r\n  # more\r\na slots=2", "hf");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 2u);
  EXPECT_EQ((*hosts)[0].name, "b");
  EXPECT_EQ((*hosts)[0].line, 3);
  EXPECT_EQ((*hosts)[1].name, "a");
  EXPECT_EQ((*hosts)[1].line, 6);
}

TEST(ParseHostfile, AcceptsOneHostWithTwoPorts) {
  EXPECT_TRUE(ParseHostfile("h:2201 slots=1\nh:2202 slots=1\n", "hf").ok());
}

struct BadFile {
  std::string text, start, hint;
};

TEST(ParseHostfile, ErrorsNamePlaceTokenAndHint) {
  const BadFile cases[] = {
      {"node1", "hf:1: 'node1': no slots given", "write 'node1 slots=N'"},
      {"a slots=1\n\nnode1  \n", "hf:3: 'node1': no slots given", "write 'node1 slots=N'"},
      {"node1 slots=0", "hf:1: 'slots=0': ", "give it 1 or more"},
      {"node1 slots=-2", "hf:1: 'slots=-2': ", "whole number from 1 to 4096"},
      {"node1 slots=", "hf:1: 'slots=': ", "whole number"},
      {"node1 slots=8x", "hf:1: 'slots=8x': ", "whole number"},
      {"node1 slots=2.5", "hf:1: 'slots=2.5': ", "whole number"},
      {"node1 slots=4097", "hf:1: 'slots=4097': more than 4096", "number of ranks"},
      {"node1 slots=99999999999999999999", "hf:1: 'slots=99999999999999999999': more than",
       "ranks"},
      {"node1 slots = 2", "hf:1: 'slots': not slots=N", "without blanks"},
      {"node1 Slots=2", "hf:1: 'Slots=2': not slots=N", "write 'node1 slots=N'"},
      {"node1 gpus=2", "hf:1: 'gpus=2': not slots=N", "write 'node1 slots=N'"},
      {"node1 slots=2 spare", "hf:1: 'spare': spare must be true or false", "write spare=true"},
      {"node1 slots=2 spare=yes", "hf:1: 'spare=yes': spare must be", "write spare=true"},
      {"node1 slots=2 spare=true x", "hf:1: 'x': nothing may follow", "remove it"},
      {"node1 slots=2 max_slots=4", "hf:1: 'max_slots=4': nothing may follow", "remove it"},
      {"a slots=1\nb slots=1\na slots=2", "hf:3: 'a': already on line 1", "once"},
      {"a slots=1\nA slots=1", "hf:2: 'A': already on line 1", "once"},
      {"a slots=1\nbob@a:22 slots=1", "hf:2: 'bob@a:22': already on line 1", "once"},
      {"h: slots=1", "hf:1: 'h:': port", "1 to 65535"},
      {"h:0 slots=1", "hf:1: 'h:0': port", "1 to 65535"},
      {"h:65536 slots=1", "hf:1: 'h:65536': port", "1 to 65535"},
      {"h:-1 slots=1", "hf:1: 'h:-1': port", "1 to 65535"},
      {"h:ssh slots=1", "hf:1: 'h:ssh': port", "1 to 65535"},
      {":22 slots=1", "hf:1: ':22': no host name", "NAME slots=N"},
      {"a:b:c slots=1", "hf:1: 'a:b:c': not an IPv6 address", "[ADDRESS]:PORT"},
      {"[::1 slots=1", "hf:1: '[::1': no IPv6 address", "[ADDRESS]"},
      {"[node1]:22 slots=1", "hf:1: '[node1]:22': no IPv6 address", "[ADDRESS]"},
      {"[::1]22 slots=1", "hf:1: '[::1]22': text after the bracket", "[ADDRESS]:PORT"},
      {"@h slots=1", "hf:1: '@h': not a user name", "USER@NAME"},
      {"-oProxyCommand=x@h slots=1", "hf:1: '-oProxyCommand=x@h': not a user name", "USER@NAME"},
      {"bob@ slots=1", "hf:1: 'bob@': no host name", "NAME slots=N"},
      {"-oProxyCommand slots=1", "hf:1: '-oProxyCommand': not a host name", "ssh/config"},
      {"a/b slots=1", "hf:1: 'a/b': not a host name", "ssh/config"},
      {"a;reboot slots=1", "hf:1: 'a;reboot': not a host name", "ssh/config"},
      {"n\xc3\xb6"
       "de slots=1",
       "hf:1: 'n\\xc3\\xb6de': not a host name", "ssh/config"},
      {std::string("a slots=1\nb\0c slots=1", 21), "hf:2: 'b\\x00c slots=1': control character",
       "plain text"},
      {"a\x1b[31m slots=1", "hf:1: 'a\\x1b[31m slots=1': control character", "plain text"},
      {"a slots=1\rb slots=1", "hf:1: 'a slots=1\\x0db slots=1': control character", "plain text"},
      {"", "hf: no hosts", "NAME slots=N"},
      {"\n# a slots=1\n\n", "hf: no hosts", "NAME slots=N"},
  };
  for (const BadFile& c : cases) {
    SCOPED_TRACE(c.text);
    const auto hosts = ParseHostfile(c.text, "hf");
    ASSERT_FALSE(hosts.ok());
    EXPECT_EQ(hosts.error().code, ExitCode::kBadInput);
    EXPECT_THAT(hosts.error().message, StartsWith(c.start));
    EXPECT_THAT(hosts.error().message, HasSubstr(c.hint));
    EXPECT_EQ(hosts.error().message.find('\n'), std::string::npos);
  }
}

TEST(ParseHostfile, RejectsLongLinesWithAShortMessage) {
  const auto line = ParseHostfile(std::string(5000, 'a') + " slots=1", "hf");
  ASSERT_FALSE(line.ok());
  EXPECT_THAT(line.error().message, HasSubstr("hf:1: 'aaa"));
  EXPECT_THAT(line.error().message, HasSubstr("longer than 1024 bytes"));
  EXPECT_LT(line.error().message.size(), 200u);
  const auto token = ParseHostfile(std::string(500, 'a'), "hf");
  ASSERT_FALSE(token.ok());
  EXPECT_LT(token.error().message.size(), 250u);
}

std::string ManyHosts(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "node" + std::to_string(i) + ".cluster slots=8\n";
  return text;
}

// Returns the time to parse `text`, as CPU time of this thread, which other processes do not
// lengthen.
double ParseSeconds(const std::string& text) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = now();
    EXPECT_TRUE(ParseHostfile(text, "hf").ok());
    best = std::min(best, now() - start);
  }
  return best;
}

TEST(ParseHostfile, RunsInLinearTime) {
  EXPECT_EQ(ParseHostfile(ManyHosts(10'000), "hf")->size(), 10'000u);
  const double small = ParseSeconds(ManyHosts(10'000));
  // Quadratic time would be 64 times as long.
  EXPECT_LT(ParseSeconds(ManyHosts(80'000)), 30 * small);
}

TEST(ParseHostfile, RandomBytesGiveHostsOrAOneLineError) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr char kAlphabet[] = "ab1@:[]#= \t\r\n\0\x1b\xc3%-slots=";
  const std::string alphabet(kAlphabet, sizeof kAlphabet - 1);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n) {
      if (random() % 6 == 0) text += " slots=2\n";
      text += alphabet[random() % alphabet.size()];
    }
    const auto hosts = ParseHostfile(text, "hf");
    if (!hosts.ok()) {
      EXPECT_THAT(hosts.error().message, StartsWith("hf:"));
      EXPECT_EQ(hosts.error().message.find('\n'), std::string::npos) << hosts.error().message;
      continue;
    }
    EXPECT_FALSE(hosts->empty());
    for (const Host& host : *hosts) {
      EXPECT_FALSE(host.host.empty());
      EXPECT_TRUE(host.slots >= 1 && host.slots <= kMaxSlots);
      EXPECT_TRUE(host.port >= 0 && host.port <= 65535);
    }
  }
}

TEST(ReadHostfile, ReadsSampleFiles) {
  const std::string samples = DSLAUNCH_HOSTFILE_SAMPLES;
  const auto one = ReadHostfile(samples + "/one_node");
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->size(), 1u);
  const auto two = ReadHostfile(samples + "/two_nodes");
  ASSERT_TRUE(two.ok()) << two.error().message;
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[1].name, "node2");
  EXPECT_EQ((*two)[1].slots, 2);
}

TEST(ReadHostfile, ReportsMissingFileAndFolder) {
  const auto missing = ReadHostfile("/nonexistent/hostfile");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kBadInput);
  EXPECT_THAT(missing.error().message, StartsWith("/nonexistent/hostfile: cannot read"));
  EXPECT_THAT(missing.error().message, HasSubstr("No such file"));
  const auto folder = ReadHostfile("/");
  ASSERT_FALSE(folder.ok());
  EXPECT_THAT(folder.error().message, HasSubstr("directory"));
}

TEST(ReadHostfile, RejectsEndlessFile) {
  const auto endless = ReadHostfile("/dev/zero");
  ASSERT_FALSE(endless.ok());
  EXPECT_THAT(endless.error().message, HasSubstr("16 MiB"));
}

}  // namespace
}  // namespace dslaunch::hostfile_test
