#include "hostfiles/host_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <sstream>

namespace dslaunch::host_filter_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<Host> Hosts(const std::string& text) {
  auto hosts = ParseHostfile(text, "hf");
  EXPECT_TRUE(hosts.ok()) << hosts.error().message;
  return *hosts;
}

// Formats hosts as in "w0*4 w1:0,2", which is all four slots of w0 and the slots 0 and 2 of w1.
std::string Text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : " ") + host.name;
    if (host.devices.empty()) text += "*" + std::to_string(host.slots);
    for (size_t i = 0; i < host.devices.size(); ++i)
      text += (i == 0 ? ":" : ",") + std::to_string(host.devices[i]);
    if (!host.devices.empty()) {
      EXPECT_EQ(host.devices.size(), static_cast<size_t>(host.slots));
    }
  }
  return text;
}

constexpr char kThree[] = "w0 slots=4\nw1 slots=4\nw2 slots=2\n";

struct GoodFilter {
  FilterKind kind;
  std::string filter;
  std::string left;
};

// All cases except the last behave as in DeepSpeed's parse_resource_filter.
TEST(FilterHosts, SelectsLikeDeepSpeed) {
  const auto I = FilterKind::kInclude;
  const auto E = FilterKind::kExclude;
  const GoodFilter cases[] = {
      {I, "", "w0*4 w1*4 w2*2"},
      {E, "", "w0*4 w1*4 w2*2"},
      {I, "w0", "w0*4"},
      {I, "w0@w1:0,2", "w0*4 w1:0,2"},
      {I, "w1:0,2@w0", "w0*4 w1:0,2"},
      {I, "w2@w1@w0", "w0*4 w1*4 w2*2"},
      {I, "w1:3", "w1:3"},
      {I, "w1:2,0,2,1", "w1:0,1,2"},
      {I, "w1:2@w1:0", "w1:0,2"},
      {I, "w1@w1:2", "w1:2"},
      {I, "w0@w0", "w0*4"},
      {I, "w1:0, 2", "w1:0,2"},
      {I, "w2:0,1", "w2:0,1"},
      {E, "w0", "w1*4 w2*2"},
      {E, "w1:0", "w0*4 w1:1,2,3 w2*2"},
      {E, "w1:0@w1:3,3@w2", "w0*4 w1:1,2"},
      {E, "w1@w1:2", "w0*4 w1:0,1,3 w2*2"},
      {E, "w1:0,1,2,3@w0", "w2*2"},
      {I, "w1:00", "w1:0"},
      {I, "[w1]:1", "w1:1"},
  };
  for (const GoodFilter& c : cases) {
    SCOPED_TRACE(c.filter);
    const auto left = FilterHosts(Hosts(kThree), c.kind, c.filter, "hf");
    ASSERT_TRUE(left.ok()) << left.error().message;
    EXPECT_EQ(Text(*left), c.left);
  }
}

TEST(FilterHosts, FindsNamesWithAtSignsAndColons) {
  const std::string file =
      "alice@a slots=2\nbob@corp.example@b:2222 slots=2\n[2001:db8::7]:22 slots=2\nh:2201 "
      "slots=2\nh:2202 slots=2\n";
  const std::pair<std::string, std::string> cases[] = {
      {"a:1", "alice@a:1"},
      {"alice@a", "alice@a*2"},
      {"alice@a:1@b", "alice@a:1 bob@corp.example@b:2222*2"},
      {"bob@corp.example@b:2222:0@a", "alice@a*2 bob@corp.example@b:2222:0"},
      {"[2001:db8::7]:1", "[2001:db8::7]:22:1"},
      {"2001:db8::7", "[2001:db8::7]:22*2"},
      {"[2001:db8::7]:22:0", "[2001:db8::7]:22:0"},
      {"h:2202:1@h:2201", "h:2201*2 h:2202:1"},
  };
  for (const auto& [filter, left_expected] : cases) {
    SCOPED_TRACE(filter);
    const auto left = FilterHosts(Hosts(file), FilterKind::kInclude, filter, "hf");
    ASSERT_TRUE(left.ok()) << left.error().message;
    EXPECT_EQ(Text(*left), left_expected);
  }
  const auto either = FilterHosts(Hosts(file), FilterKind::kInclude, "h:0", "hf");
  ASSERT_FALSE(either.ok());
  EXPECT_THAT(either.error().message, HasSubstr("'h:0': may be h:2201 or h:2202"));
}

TEST(FilterHosts, KeepsOtherFieldsOfANode) {
  auto hosts = Hosts("- {name: a, user: u, port: 7, slots: 4, spare: true, env: {X: y}}");
  const auto left = FilterHosts(hosts, FilterKind::kInclude, "a:3", "hf");
  ASSERT_TRUE(left.ok()) << left.error().message;
  hosts[0].slots = 1;
  hosts[0].devices = {3};
  EXPECT_EQ(left->front().env, hosts[0].env);
  EXPECT_EQ(left->front().port, 7);
  EXPECT_EQ(left->front().user, "u");
  EXPECT_TRUE(left->front().spare);
  EXPECT_EQ(left->front().devices, hosts[0].devices);
  EXPECT_EQ(left->front().slots, 1);
}

struct BadFilter {
  FilterKind kind;
  std::string filter, start, hint;
};

TEST(FilterHosts, ErrorsNameTokenAndHint) {
  const auto I = FilterKind::kInclude;
  const auto E = FilterKind::kExclude;
  const BadFilter cases[] = {
      {I, "w9", "--include: 'w9': no such node in hf", "did you mean 'w0'?"},
      {E, "elsewhere", "--exclude: 'elsewhere': no such node in hf", "it has w0, w1, w2"},
      {I, "w0@x:1", "--include: 'x:1': no such node", "hf"},
      {I, "W0", "--include: 'W0': no such node", "did you mean 'w0'?"},
      {I, " w0", "--include: ' w0': no such node", "did you mean 'w0'?"},
      {I, "w0:4", "--include: 'w0:4': no slot 4", "w0 has slots 0 to 3"},
      {I, "w0:99999999999", "--include: 'w0:99999999999': no slot 99999999999", "slots 0 to 3"},
      {E, "w0:0,7", "--exclude: 'w0:0,7': no slot 7", "slots 0 to 3"},
      {I, "w0:0-2", "--include: 'w0:0-2': ranges are not supported", "w0:0,1,2"},
      {I, "w0:-1", "--include: 'w0:-1': a slot is a number", "NAME:SLOT,SLOT"},
      {I, "w0:", "--include: 'w0:': a slot is a number", "NAME:SLOT,SLOT"},
      {I, "w0:1,", "--include: 'w0:1,': a slot is a number", "NAME:SLOT,SLOT"},
      {I, "w0:1,,2", "--include: 'w0:1,,2': a slot is a number", "NAME:SLOT,SLOT"},
      {I, "w0:one", "--include: 'w0:one': a slot is a number", "NAME:SLOT,SLOT"},
      {I, "w0:1:2", "--include: 'w0:1:2': a slot is a number", "NAME:SLOT,SLOT"},
      {I, "w0,w1", "--include: 'w0,w1': no such node", "hf"},
      {I, "@", "--include: '@': no node name next to it", "NAME@NAME"},
      {I, "w0@", "--include: '@': no node name next to it", "NAME@NAME"},
      {I, "@w0", "--include: '@': no node name next to it", "NAME@NAME"},
      {I, "w0@@w1", "--include: '@': no node name next to it", "NAME@NAME"},
      {E, "w0@w1@w2", "--exclude leaves no slot of hf", "fewer"},
      {E, "w0:0,1,2,3@w1@w2:0,1", "--exclude leaves no slot of hf", "fewer"},
      {I, "w0:\x1b[31m", "--include: 'w0:", "NAME:SLOT,SLOT"},
      {I, std::string(5000, 'x'), "--include: 'xxxx", "no such node"},
  };
  for (const BadFilter& c : cases) {
    SCOPED_TRACE(c.filter);
    const auto left = FilterHosts(Hosts(kThree), c.kind, c.filter, "hf");
    ASSERT_FALSE(left.ok());
    EXPECT_EQ(left.error().code, ExitCode::kUsage);
    EXPECT_THAT(left.error().message, StartsWith(c.start));
    EXPECT_THAT(left.error().message, HasSubstr(c.hint));
    EXPECT_EQ(left.error().message.find_first_of("\n\x1b"), std::string::npos);
    EXPECT_LT(left.error().message.size(), 250u);
  }
}

TEST(FilterHosts, ErrorNamesTheOnlySlot) {
  const auto left = FilterHosts(Hosts("a slots=1"), FilterKind::kInclude, "a:1", "hf");
  ASSERT_FALSE(left.ok());
  EXPECT_THAT(left.error().message, HasSubstr("no slot 1: a has slot 0 only"));
}

// Returns the slots that a filter selects for each host. Computed without parsing, for comparison.
std::map<std::string, std::set<int>> Meaning(
    const std::vector<std::pair<std::string, std::vector<int>>>& nodes) {
  std::map<std::string, std::set<int>> meaning;
  for (const auto& [name, slots] : nodes) meaning[name].insert(slots.begin(), slots.end());
  return meaning;
}

TEST(FilterHosts, IncludeAndExcludePartitionTheSlots) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string file;
    std::vector<int> slots(2 + random() % 6);
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i] = 1 + static_cast<int>(random() % 8);
      file += "n" + std::to_string(i) + " slots=" + std::to_string(slots[i]) + "\n";
    }
    std::vector<std::pair<std::string, std::vector<int>>> nodes;
    std::string filter;
    for (size_t n = 1 + random() % 6; n > 0; --n) {
      const size_t node = random() % slots.size();
      nodes.push_back({"n" + std::to_string(node), {}});
      filter += (filter.empty() ? "" : "@") + nodes.back().first;
      for (size_t k = random() % 4; k > 0; --k) {
        nodes.back().second.push_back(static_cast<int>(random()) % slots[node]);
        int& slot = nodes.back().second.back();
        slot = slot < 0 ? -slot : slot;
        filter += (nodes.back().second.size() == 1 ? ":" : ",") + std::to_string(slot);
      }
    }
    SCOPED_TRACE(file + filter);
    const auto meaning = Meaning(nodes);
    const auto in = FilterHosts(Hosts(file), FilterKind::kInclude, filter, "hf");
    const auto out = FilterHosts(Hosts(file), FilterKind::kExclude, filter, "hf");
    ASSERT_TRUE(in.ok()) << in.error().message;
    std::map<std::string, std::set<int>> taken, kept;
    const auto collect = [](const std::vector<Host>& hosts, auto& into) {
      for (const Host& host : hosts) {
        for (int i = 0; i < host.slots; ++i)
          into[host.name].insert(host.devices.empty() ? i : host.devices[static_cast<size_t>(i)]);
      }
    };
    collect(*in, taken);
    if (out.ok()) collect(*out, kept);
    for (size_t i = 0; i < slots.size(); ++i) {
      const std::string name = "n" + std::to_string(i);
      const auto named = meaning.find(name);
      for (int slot = 0; slot < slots[i]; ++slot) {
        const bool expected =
            named != meaning.end() && (named->second.empty() || named->second.contains(slot));
        EXPECT_EQ(taken[name].contains(slot), expected) << name << ":" << slot;
        EXPECT_EQ(kept[name].contains(slot), !expected) << name << ":" << slot;
      }
    }
  }
}

}  // namespace
}  // namespace dslaunch::host_filter_test
