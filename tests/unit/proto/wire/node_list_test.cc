#include "proto/wire/node_list.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace dslaunch::node_list_test {
namespace {

pb::Node Node(const std::string& name, uint32_t slots = 8, bool spare = false) {
  pb::Node node;
  node.set_name(name);
  node.set_slots(slots);
  node.set_spare(spare);
  return node;
}

std::vector<pb::Node> Named(const std::vector<std::string>& names) {
  std::vector<pb::Node> nodes;
  for (const std::string& name : names) nodes.push_back(Node(name));
  return nodes;
}

// Packs the nodes and checks that they survive a round trip. Returns the number of packed runs.
int Packed(const std::vector<pb::Node>& nodes) {
  pb::NodeList arrived;
  EXPECT_TRUE(arrived.ParseFromString(PackNodes(nodes).SerializeAsString()));
  const Result<NodeTable> table = NodeTable::Read(arrived);
  EXPECT_TRUE(table.ok());
  EXPECT_EQ(table->size(), nodes.size());
  uint32_t slots = 0;
  uint32_t regular = 0;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(table->At(i).SerializeAsString(), nodes[i].SerializeAsString()) << nodes[i].name();
    EXPECT_EQ(table->SlotsOf(i), nodes[i].slots());
    slots += nodes[i].slots();
    regular += nodes[i].spare() ? 0 : nodes[i].slots();
  }
  EXPECT_EQ(table->num_slots(), slots);
  EXPECT_EQ(table->num_regular_slots(), regular);
  EXPECT_EQ(table->All().size(), nodes.size());
  return arrived.counts_size();
}

TEST(NodeListTest, PacksNamesThatDifferInANumberAsOneRun) {
  EXPECT_EQ(Packed({}), 0);
  EXPECT_EQ(Packed(Named({"a"})), 1);
  EXPECT_EQ(Packed(Named({"node8", "node9", "node10", "node11"})), 1);
  EXPECT_EQ(Packed(Named({"n008", "n009", "n010"})), 1);
  EXPECT_EQ(Packed(Named({"n98", "n99", "n100"})), 1);
  EXPECT_EQ(Packed(Named({"n1.rack2.example.com", "n2.rack2.example.com"})), 1);
  EXPECT_EQ(Packed(Named({"10.0.0.9", "10.0.0.10", "10.0.0.11"})), 1);
  EXPECT_EQ(Packed(Named({"19", "20"})), 1);
  EXPECT_EQ(Packed(Named({"n999999999999999999", "n1000000000000000000"})), 1);
}

TEST(NodeListTest, PacksOtherNodesAsSeparateRuns) {
  EXPECT_EQ(Packed(Named({"n1", "n3", "n2"})), 3);
  EXPECT_EQ(Packed(Named({"n1", "n1"})), 2);
  EXPECT_EQ(Packed(Named({"n1", "n1a"})), 2);
  EXPECT_EQ(Packed(Named({"n1", "n", "n2"})), 3);
  EXPECT_EQ(Packed(Named({"n09", "n10", "n011"})), 2);
  EXPECT_EQ(Packed(Named({"r1n1", "r1n2", "r2n1", "r2n2"})), 2);
  EXPECT_EQ(Packed(Named({"\u00e91", "\u00ea2", ""})), 3);
  EXPECT_EQ(Packed(Named({"n1000000000000000000", "n1000000000000000001"})), 2);
  EXPECT_EQ(Packed({Node("n1", 8), Node("n2", 4), Node("n3", 4, true)}), 3);
}

TEST(NodeListTest, ListOfThousandsOfNodesIsShort) {
  std::vector<pb::Node> nodes;
  for (int i = 1; i <= 10'000; ++i) nodes.push_back(Node("node" + std::to_string(i)));
  EXPECT_LT(PackNodes(nodes).ByteSizeLong(), 40u);
}

TEST(NodeListTest, RejectsMalformedLists) {
  const pb::NodeList good = PackNodes(Named({"n1", "n2", "x"}));
  ASSERT_TRUE(NodeTable::Read(good).ok());
  for (const auto& spoil : std::vector<std::function<void(pb::NodeList&)>>{
           [](pb::NodeList& list) { list.add_counts(1); },
           [](pb::NodeList& list) { list.clear_slots(); },
           [](pb::NodeList& list) { list.set_counts(0, 0); },
           [](pb::NodeList& list) { list.set_counts(0, UINT32_MAX); },
           [](pb::NodeList& list) { list.set_counts(1, 2); },
           [](pb::NodeList& list) { list.set_digits(0, 19); },
           [](pb::NodeList& list) { list.set_numbers(0, UINT64_MAX); },
           [](pb::NodeList& list) { list.mutable_texts()->pop_back(); },
           [](pb::NodeList& list) { list.mutable_texts()->append("more"); }}) {
    pb::NodeList bad = good;
    spoil(bad);
    EXPECT_FALSE(NodeTable::Read(bad).ok()) << bad.ShortDebugString();
  }
}

}  // namespace
}  // namespace dslaunch::node_list_test
