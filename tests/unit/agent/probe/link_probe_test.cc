#include "agent/probe/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "net/addresses.h"

namespace dslaunch {
namespace {

constexpr char kToken[] = "0123456789abcdef";

// Starts `server` and returns its endpoint on the loopback interface.
std::string ServeHere(LinkServer& server, uint32_t for_ms = 10'000) {
  pb::ServeLinkRequest request;
  request.set_token(kToken);
  request.set_for_ms(for_ms);
  const pb::ServeLinkReply reply = server.Start(request);
  EXPECT_EQ("", reply.refusal());
  if (reply.endpoints().empty()) return "";
  return JoinHostPort("127.0.0.1", PortOfEndpoint(reply.endpoints(0)));
}

pb::LinkMeasurement MeasureAt(const std::vector<std::string>& endpoints,
                              const std::string& token = kToken) {
  pb::MeasureLinkRequest request;
  request.set_token(token);
  for (const std::string& endpoint : endpoints) request.add_endpoints(endpoint);
  request.set_window_ms(60);
  request.set_patience_ms(5'000);
  return MeasureLink(request);
}

class LinkProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ReachableAddresses().empty()) GTEST_SKIP() << "this machine has no network";
  }
  LinkServer server_;
};

TEST_F(LinkProbeTest, MeasuresBothDirections) {
  const std::string endpoint = ServeHere(server_);
  const pb::LinkMeasurement measured = MeasureAt({endpoint});
  EXPECT_EQ("", measured.trouble());
  EXPECT_EQ(endpoint, measured.endpoint());
  EXPECT_GT(measured.round_trip_ns(), 0u);
  EXPECT_GT(measured.sent_bytes_per_s(), 1'000'000u);
  EXPECT_GT(measured.received_bytes_per_s(), 1'000'000u);
}

TEST_F(LinkProbeTest, TriesNextEndpointAfterFailure) {
  const std::string endpoint = ServeHere(server_);
  EXPECT_EQ(endpoint, MeasureAt({"127.0.0.1:1", endpoint}).endpoint());
}

TEST_F(LinkProbeTest, RefusesClientWithWrongToken) {
  const pb::LinkMeasurement measured = MeasureAt({ServeHere(server_)}, "fedcba9876543210");
  EXPECT_EQ("", measured.endpoint());
  EXPECT_THAT(measured.trouble(), testing::HasSubstr("does not answer"));
}

TEST_F(LinkProbeTest, ReportsRefusedConnection) {
  EXPECT_THAT(MeasureAt({"127.0.0.1:1"}).trouble(),
              testing::HasSubstr("127.0.0.1:1: Connection refused"));
  EXPECT_EQ("the other node has no address", MeasureAt({}).trouble());
}

TEST_F(LinkProbeTest, ClosesPortWhenStopped) {
  const std::string endpoint = ServeHere(server_);
  server_.Stop();
  EXPECT_THAT(MeasureAt({endpoint}).trouble(), testing::HasSubstr("Connection refused"));
}

TEST(LinkServer, RefusesInvalidToken) {
  LinkServer server;
  pb::ServeLinkRequest request;
  request.set_token("../x");
  EXPECT_EQ("the token is not valid", server.Start(request).refusal());
}

}  // namespace
}  // namespace dslaunch
