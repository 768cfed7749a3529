#include "cli/core/node_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "proto/wire/node_list.h"

namespace dslaunch::node_requests_test {
namespace {

using testing::ElementsAre;

// Three nodes with one slot each; the last is a spare.
SessionOptions OptionsFor(Launcher launcher, const std::string& own_address = "") {
  SessionOptions options;
  options.plan.launcher = launcher;
  for (const char* name : {"node0", "node1", "node2"}) {
    Host& node = options.plan.nodes.emplace_back();
    node.name = name;
    node.slots = 1;
  }
  options.plan.nodes[2].spare = true;
  options.plan.ranks = NumberRanksOf(options.plan.nodes);
  options.own_address = own_address;
  return options;
}

// Sets the addresses of nodes 1 and 2, and a request to run with one endpoint.
void BeginRun(NodeRequests& requests) {
  requests.SetAddresses(1, {.node = "10.0.0.1", .own = "10.0.0.100"});
  requests.SetAddresses(2, {.node = "10.0.0.2", .own = ""});
  pb::RunRequest run;
  run.add_rendezvous_endpoints("host:7000");
  run.mutable_shown();
  requests.SetRun(std::move(run));
}

TEST(NodeRequests, PrepareHasNodesHostAndAbsentNodes) {
  const SessionOptions options = OptionsFor(Launcher::kSsh);
  NodeRequests requests(options);
  requests.SetHost(1);
  requests.AddAbsent(0);
  const pb::PrepareRequest request = requests.PrepareFor(2);
  EXPECT_EQ(request.node_index(), 2U);
  EXPECT_EQ(request.rendezvous_node(), 1U);
  EXPECT_THAT(request.absent_nodes(), ElementsAre(0));
  const Result<NodeTable> nodes = NodeTable::Read(request.job().nodes());
  ASSERT_TRUE(nodes.ok());
  EXPECT_EQ(nodes->size(), 3U);
  EXPECT_EQ(nodes->At(1).name(), "node1");
  EXPECT_FALSE(nodes->At(1).spare());
  EXPECT_TRUE(nodes->At(2).spare());
}

TEST(NodeRequests, OmitsShownOutputOfNodeWithOwnCommand) {
  const SessionOptions options = OptionsFor(Launcher::kPerNode, "10.0.0.9");
  NodeRequests requests(options);
  BeginRun(requests);
  EXPECT_TRUE(requests.RunFor(0).has_shown());
  EXPECT_FALSE(requests.RunFor(1).has_shown());
}

TEST(NodeRequests, UsesReportedEndpointsOverSsh) {
  const SessionOptions options = OptionsFor(Launcher::kSsh, "10.0.0.9");
  NodeRequests requests(options);
  EXPECT_FALSE(requests.running());
  BeginRun(requests);
  EXPECT_TRUE(requests.running());
  EXPECT_THAT(requests.RunFor(1).rendezvous_endpoints(), ElementsAre("host:7000"));
}

TEST(NodeRequests, UsesOwnAddressIfThisMachineHosts) {
  const SessionOptions options = OptionsFor(Launcher::kPerNode, "10.0.0.9");
  NodeRequests requests(options);
  BeginRun(requests);
  EXPECT_THAT(requests.EndpointsFor(0), ElementsAre("host:7000"));
  EXPECT_THAT(requests.EndpointsFor(1), ElementsAre("10.0.0.9:7000"));
}

TEST(NodeRequests, FallsBackToAddressOfConnection) {
  const SessionOptions options = OptionsFor(Launcher::kPerNode);
  NodeRequests requests(options);
  BeginRun(requests);
  EXPECT_THAT(requests.EndpointsFor(1), ElementsAre("10.0.0.100:7000", "host:7000"));
  EXPECT_THAT(requests.EndpointsFor(2), ElementsAre("host:7000"));
}

TEST(NodeRequests, UsesAddressOfNodeThatHosts) {
  const SessionOptions options = OptionsFor(Launcher::kPerNode, "10.0.0.9");
  NodeRequests requests(options);
  BeginRun(requests);
  pb::RendezvousOpened opened;
  opened.add_rendezvous_endpoints("node1:8000");
  requests.MoveHost(1, opened);
  EXPECT_EQ(requests.host(), 1U);
  EXPECT_THAT(requests.EndpointsFor(1), ElementsAre("node1:8000"));
  EXPECT_THAT(requests.EndpointsFor(0), ElementsAre("10.0.0.1:8000", "node1:8000"));
  EXPECT_THAT(requests.EndpointsFor(2), ElementsAre("10.0.0.1:8000", "node1:8000"));
}

}  // namespace
}  // namespace dslaunch::node_requests_test
