#include "hostfiles/hostfile_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

namespace dslaunch::hostfile_yaml_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::StartsWith;

TEST(ParseYamlHostfile, ReadsAllFieldsOfTheSample) {
  const auto hosts = ReadHostfile(DSLAUNCH_HOSTFILE_SAMPLES "/cluster.yaml");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 3u);
  const Host& first = hosts->front();
  EXPECT_EQ(first.name, "node1");
  EXPECT_EQ(first.host, "10.0.0.1");
  EXPECT_EQ(first.user, "alice");
  EXPECT_EQ(first.port, 2222);
  EXPECT_EQ(first.slots, 8);
  EXPECT_EQ(first.line, 3);
  EXPECT_FALSE(first.spare);
  EXPECT_THAT(first.labels, ElementsAre(Pair("rack", "a7"), Pair("gpu", "h100")));
  EXPECT_THAT(first.env,
              ElementsAre(Pair("NCCL_SOCKET_IFNAME", "eth1"), Pair("GREETING", "two words")));
  const Host& second = (*hosts)[1];
  EXPECT_EQ(second.env, first.env) << "by its alias";
  EXPECT_THAT(second.labels, IsEmpty());
  EXPECT_EQ(second.port, 0);
  EXPECT_EQ((*hosts)[2].host, "node3");
  EXPECT_TRUE((*hosts)[2].spare);
}

TEST(ParseYamlHostfile, NameAndAddressDefaultToEachOther) {
  const auto hosts = ParseHostfile(
      "- {name: a, slots: 1}\n- {address: 10.0.0.2, slots: 1}\n- {address: '2001:db8::7', slots: "
      "1}\n- {name: d, address: fe80::1%eth0, slots: 2}\n",
      "hf");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  std::vector<std::pair<std::string, std::string>> found;
  for (const Host& host : *hosts) found.emplace_back(host.name, host.host);
  EXPECT_THAT(found, ElementsAre(Pair("a", "a"), Pair("10.0.0.2", "10.0.0.2"),
                                 Pair("2001:db8::7", "2001:db8::7"), Pair("d", "fe80::1%eth0")));
}

TEST(ParseYamlHostfile, KeepsValuesOfVariablesAsWritten) {
  const auto hosts = ParseHostfile(
      "hosts:\n- name: a\n  slots: 1\n  environment:\n    A: 007\n    B: yes\n    C: 1e3\n    D: "
      "''\n"
      "    E: \"two\\nlines\"\n    F: 64(x2)\n    G: $(x) `y`\n    H: \"null\"\n",
      "hf");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_THAT(hosts->front().env,
              ElementsAre(Pair("A", "007"), Pair("B", "yes"), Pair("C", "1e3"), Pair("D", ""),
                          Pair("E", "two\nlines"), Pair("F", "64(x2)"), Pair("G", "$(x) `y`"),
                          Pair("H", "null")));
}

TEST(ParseYamlHostfile, AcceptsOneAddressWithTwoPorts) {
  const auto hosts = ParseHostfile(
      "- {name: a, address: h, port: 2201, slots: 1}\n- {name: b, address: h, port: 2202, slots: "
      "1}\n",
      "hf");
  EXPECT_TRUE(hosts.ok()) << hosts.error().message;
}

TEST(IsYamlHostfile, RecognizesYamlByFileNameOrFirstLine) {
  const std::pair<const char*, const char*> yes[] = {
      {"node1 slots=2\n", "hosts.yaml"},  {"", "h.yml"},       {"hosts:\n", "hf"},
      {"# c\n\n  - name: a\n", "hf"},     {"---\nhosts:", ""}, {"{hosts: []}", "hf"},
      {"%YAML 1.2\n---\nhosts:\n", "hf"}, {"-\n", "hf"},
  };
  for (const auto& [text, path] : yes) EXPECT_TRUE(IsYamlHostfile(text, path)) << text;
  const std::pair<const char*, const char*> no[] = {
      {"node1 slots=2\n- name: a", "hf"},
      {"", "hf"},
      {"# hosts:\n[::1] slots=2", "hostfile.txt"},
      {"hosts slots=2", "hf"},
      {"-x slots=1", "hf"},
  };
  for (const auto& [text, path] : no) EXPECT_FALSE(IsYamlHostfile(text, path)) << text;
}

struct BadFile {
  std::string text, start, hint;
};

std::string Nested(int levels) {
  std::string text = "hosts: ";
  for (int i = 0; i < levels; ++i) text += "[";
  return text;
}

// Returns a file with nine levels of ten aliases each, which expand to a billion values.
std::string Bomb() {
  std::string text = "- &a0 {name: a, slots: 1, labels: {x: y}}\n";
  for (int level = 1; level < 10; ++level) {
    const std::string last = "*a" + std::to_string(level - 1);
    text += "- &a" + std::to_string(level) + " [" + last;
    for (int i = 0; i < 9; ++i) text += "," + last;
    text += "]\n";
  }
  return text;
}

// Returns a file in which each of many hosts refers to one large map.
std::string WideBomb() {
  std::string text = "- name: n\n  slots: 1\n  env: &e\n";
  for (int i = 0; i < 20'000; ++i) text += "    V" + std::to_string(i) + ": x\n";
  for (int i = 0; i < 20'000; ++i)
    text += "- {name: n" + std::to_string(i) + ", slots: 1, env: *e}\n";
  return text;
}

TEST(ParseYamlHostfile, ErrorsNamePlaceTokenAndHint) {
  const BadFile cases[] = {
      {"", "hf.yaml: no hosts", "'- name: NAME'"},
      {"# nothing\n", "hf.yaml: no hosts", "'slots: N'"},
      {"hosts:\n", "hf.yaml: no hosts", "'slots: N'"},
      {"hosts: []\n", "hf.yaml: no hosts", "'slots: N'"},
      {"node1 slots=2\n", "hf.yaml:1: 'node1 slots=2': not a list of nodes",
       "another name than .y"},
      {"hosts: node1\n", "hf.yaml:1: 'hosts': must be a list", "'- name: NAME'"},
      {"nodes:\n- name: a\n", "hf.yaml:1: 'nodes': the only key here is 'hosts'", "'- name: NAME'"},
      {"hosts: [{name: a, slots: 1}]\nhosts: []\n", "hf.yaml:2: 'hosts': given twice", "keep one"},
      {"- node1 slots=2\n", "hf.yaml:1: 'node1 slots=2': a node must be a map", "'- name: NAME'"},
      {"- slots: 2\n", "hf.yaml:1: '-': a node without a name", "add 'name: NAME'"},
      {"- name: a\n", "hf.yaml:1: 'a': no slots given", "add 'slots: N'"},
      {"- name: a\n  slots: 0\n", "hf.yaml:2: 'slots: 0': ", "give it 1 or more"},
      {"- name: a\n  slots: -1\n", "hf.yaml:2: 'slots: -1': ", "whole number from 1 to 4096"},
      {"- name: a\n  slots: 2.0\n", "hf.yaml:2: 'slots: 2.0': ", "whole number"},
      {"- name: a\n  slots: 99999999999\n", "hf.yaml:2: 'slots: 99999999999': more than", "ranks"},
      {"- name: a\n  slots:\n", "hf.yaml:2: 'slots': must have one value", "'slots: 8'"},
      {"- name: a\n  slots: [1]\n", "hf.yaml:2: 'slots': must have one value", "'slots: 8'"},
      {"- name: a\n  slots: 1\n  port: 0\n", "hf.yaml:3: 'port: 0': port must", "1 to 65535"},
      {"- name: a\n  slots: 1\n  port: ssh\n", "hf.yaml:3: 'port: ssh': port must", "1 to 65535"},
      {"- name: a\n  slots: 1\n  spare: yes\n", "hf.yaml:3: 'spare: yes': spare must be",
       "lost one"},
      {"- name: a\n  slot: 1\n", "hf.yaml:2: 'slot': unknown key", "did you mean 'slots'?"},
      {"- name: a\n  zzzzzz: 1\n", "hf.yaml:2: 'zzzzzz': not a key of a node", "name, address"},
      {"- name: a\n  <<: {slots: 1}\n", "hf.yaml:2: '<<': not a key of a node", "name, address"},
      {"- name: a\n  name: b\n", "hf.yaml:2: 'name': given twice", "keep one"},
      {"- {name: a, slots: 1, env: {A: b}, environment: {A: b}}\n",
       "hf.yaml:1: 'environment': given twice", "keep one"},
      {"- name: -oProxyCommand=x\n  slots: 1\n", "hf.yaml:1: '-oProxyCommand=x': not a host name",
       "have keys of their own"},
      {"- name: bob@a:22\n  slots: 1\n", "hf.yaml:1: 'bob@a:22': not a host name",
       "user and port have keys"},
      {"- name: ../../x\n  slots: 1\n", "hf.yaml:1: '../../x': not a host name", "keys"},
      {"- name: a\n  user: -l\n  slots: 1\n", "hf.yaml:2: '-l': not a user name", "user: NAME"},
      {"- name: a\n  slots: 1\n- name: b\n  slots: 1\n- name: a\n  slots: 2\n",
       "hf.yaml:5: 'a': already on line 1", "once"},
      {"- name: a\n  slots: 1\n- name: b\n  address: A\n  slots: 2\n",
       "hf.yaml:3: 'b': already on line 1", "once"},
      {"- name: a\n  slots: 1\n- name: a\n  address: c\n  slots: 2\n",
       "hf.yaml:3: 'a': already on line 1", "once"},
      {"- name: a\n  slots: 1\n  labels: [x]\n", "hf.yaml:3: 'labels': must be a map",
       "labels: {NAME: VALUE}"},
      {"- name: a\n  slots: 1\n  env: {A: [1]}\n", "hf.yaml:3: 'A': must have one value", "''"},
      {"- name: a\n  slots: 1\n  env:\n    A:\n", "hf.yaml:4: 'A': must have one value", "''"},
      {"- name: a\n  slots: 1\n  env:\n    A: 1\n    A: 2\n", "hf.yaml:5: 'A': given twice",
       "keep"},
      {"- name: a\n  slots: 1\n  env: {A=B: c}\n", "hf.yaml:3: 'A=B': not the name of a variable",
       "NAME: VALUE"},
      {"- name: a\n  slots: 1\n  env: {'': c}\n", "hf.yaml:3: '': not the name of a variable",
       "NAME: VALUE"},
      {"- name: a\n  slots: 1\n  env: {A: \"x\\0y\"}\n", "hf.yaml:3: 'A': no variable can hold",
       "remove"},
      {"- name: a\n  slots: 1\n  env: {A: " + std::string(200'000, 'x') + "}\n",
       "hf.yaml:3: 'A': longer than a variable can be", "file"},
      {"- name: " + std::string(2000, 'x') + "\n  slots: 1\n", "hf.yaml:1: 'name: xxx",
       "1024 bytes"},
      {"- name: !!int 3\n", "hf.yaml:1: 'tag:yaml.org,2002:int': tags are not", "plain value"},
      {"- [a: 1\n", "hf.yaml:", "not valid YAML"},
      {"- name: a\n\tslots: 1\n", "hf.yaml:2: ", "not valid YAML"},
      {"- name: \"a\n", "hf.yaml:1: 'a ': not a host name", "IP address"},
      {"- *nowhere\n", "hf.yaml:1: ", "not valid YAML"},
      {"- &a [*a]\n", "hf.yaml:1: ", "alias to the value it is part of"},
      {"? {a: b}\n: c\n", "hf.yaml:1: ", "a key must be a plain word"},
      {"- {name: a, slots: 1}\n---\n- {name: b, slots: 1}\n", "hf.yaml: holds more than one",
       "one"},
      {Nested(9), "hf.yaml:1: '': nested more than 8 levels", "'- name: NAME'"},
      {Nested(100'000), "hf.yaml:1: '': nested more than 8 levels", "'- name: NAME'"},
      {Bomb(), "hf.yaml:", "nested more than 8 levels"},
      {WideBomb(), "hf.yaml:", "too large (aliases are expanded)"},
  };
  for (const BadFile& c : cases) {
    SCOPED_TRACE(c.text.substr(0, 200));
    const auto hosts = ParseHostfile(c.text, "hf.yaml");
    ASSERT_FALSE(hosts.ok());
    EXPECT_EQ(hosts.error().code, ExitCode::kBadInput);
    EXPECT_THAT(hosts.error().message, StartsWith(c.start));
    EXPECT_THAT(hosts.error().message, HasSubstr(c.hint));
    EXPECT_EQ(hosts.error().message.find('\n'), std::string::npos);
    EXPECT_LT(hosts.error().message.size(), 300u);
  }
}

std::string ManyHosts(int count) {
  std::string text = "hosts:\n";
  for (int i = 0; i < count; ++i)
    text += "- {name: node" + std::to_string(i) + ", slots: 8, env: {A: b}}\n";
  return text;
}

double ParseSeconds(const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(ParseHostfile(text, "hf").ok());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(ParseYamlHostfile, RunsInLinearTime) {
  EXPECT_EQ(ParseHostfile(ManyHosts(2'000), "hf")->size(), 2'000u);
  const double small = ParseSeconds(ManyHosts(2'000));
  // Quadratic time would be 64 times as long.
  EXPECT_LT(ParseSeconds(ManyHosts(16'000)), 30 * small);
}

// Changes a file at random. The result must be either consistent hosts or an error of one line.
TEST(ParseYamlHostfile, RandomBytesGiveHostsOrAOneLineError) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::ifstream file(DSLAUNCH_HOSTFILE_SAMPLES "/cluster.yaml");
  const std::string sample{std::istreambuf_iterator<char>(file), {}};
  const std::string pieces[] = {"- ", "\n", "  ",     ": ",  "{",    "}",  "[",    "]",
                                "&a", "*a", "slots:", "|\n", "null", "\"", "'",    "!!x ",
                                "#",  "\t", "\x1b",   "\0",  "\xc3", "? ", "<<: ", "---\n"};
  int accepted = 0;
  for (int i = 0; i < 5'000; ++i) {
    std::string text = sample;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      const size_t length = random() % 3 == 0 ? random() % 40 : 0;
      text.replace(at, length, random() % 4 == 0 ? "" : pieces[random() % std::size(pieces)]);
    }
    const auto hosts = ParseYamlHostfile(text, "hf");
    if (!hosts.ok()) {
      EXPECT_THAT(hosts.error().message, StartsWith("hf:"));
      EXPECT_EQ(hosts.error().code, ExitCode::kBadInput);
      for (const char c : hosts.error().message)
        EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << text;
      continue;
    }
    ++accepted;
    EXPECT_FALSE(hosts->empty());
    for (const Host& host : *hosts) {
      EXPECT_FALSE(host.name.empty());
      EXPECT_FALSE(host.host.empty());
      EXPECT_EQ(host.name.find('/'), std::string::npos);
      EXPECT_TRUE(host.slots >= 1 && host.slots <= kMaxSlots);
      EXPECT_TRUE(host.port >= 0 && host.port <= 65535);
      EXPECT_TRUE(host.line >= 1);
    }
  }
  EXPECT_GT(accepted, 100) << "most changes break the file: nothing was tried";
}

}  // namespace
}  // namespace dslaunch::hostfile_yaml_test
