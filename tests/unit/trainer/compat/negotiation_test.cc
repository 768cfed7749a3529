#include "trainer/compat/horovod/negotiation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::horovod {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Request Reduce(const std::string& name, std::vector<int64_t> shape = {4}) {
  Request request;
  request.name = name;
  request.tensors = {{std::move(shape), at::kFloat}};
  return request;
}

RankMessage Says(std::vector<Request> requests, std::vector<size_t> cached = {}) {
  RankMessage message;
  message.requests = std::move(requests);
  message.cached = std::move(cached);
  return message;
}

RankMessage Joined() {
  RankMessage message;
  message.joined = true;
  return message;
}

std::vector<std::string> NamesOf(const Negotiation::Decision& decision) {
  std::vector<std::string> names;
  for (const Response& response : decision.ready) names.push_back(response.request.name);
  return names;
}

class NegotiationTest : public testing::Test {
 protected:
  Negotiation::Decision Cycle(Negotiation& negotiation, const std::vector<RankMessage>& messages) {
    now_ += milliseconds(1);
    return negotiation.OnCycle(messages, now_);
  }
  Negotiation::Clock::time_point now_;
};

TEST_F(NegotiationTest, TensorIsReadyOnceAllRanksSubmittedIt) {
  Negotiation negotiation({0, 1}, 8);
  EXPECT_THAT(NamesOf(Cycle(negotiation, {Says({Reduce("a"), Reduce("b")}), Says({Reduce("c")})})),
              IsEmpty());
  EXPECT_THAT(NamesOf(Cycle(negotiation, {Says({}), Says({Reduce("b")})})), ElementsAre("b"));
  EXPECT_THAT(NamesOf(Cycle(negotiation, {Says({Reduce("c")}), Says({Reduce("a")})})),
              ElementsAre("a", "c"));
}

TEST_F(NegotiationTest, EvictsLeastRecentlyUsedName) {
  Negotiation negotiation({0, 1}, 2);
  for (const char* name : {"a", "b"}) {
    Cycle(negotiation, {Says({Reduce(name)}), Says({Reduce(name)})});
  }
  EXPECT_EQ(negotiation.CachedPosition(Reduce("a")), 0u);
  EXPECT_EQ(negotiation.CachedPosition(Reduce("b")), 1u);
  EXPECT_EQ(negotiation.CachedPosition(Reduce("b", {5})), std::nullopt);
  EXPECT_THAT(NamesOf(Cycle(negotiation, {Says({}, {0}), Says({}, {0})})), ElementsAre("a"));
  Cycle(negotiation, {Says({Reduce("c")}), Says({Reduce("c")})});
  EXPECT_EQ(negotiation.CachedPosition(Reduce("b")), std::nullopt);
  EXPECT_EQ(negotiation.CachedPosition(Reduce("c")), 1u);
  ExpectRefused(
      [&] {
        Cycle(negotiation, {Says({}, {7}), Says({})});
      },
      ExitCode::kInternal, HasSubstr("rank 0 named a tensor that is not in the cache"));
}

TEST_F(NegotiationTest, ReportsNewShapeOfOneRankToAll) {
  Negotiation negotiation({3, 5}, 2);
  Cycle(negotiation, {Says({Reduce("a")}), Says({Reduce("a")})});
  const auto decision = Cycle(negotiation, {Says({}, {0}), Says({Reduce("a", {4, 2})})});
  ASSERT_THAT(decision.ready, SizeIs(1));
  EXPECT_THAT(decision.ready[0].error,
              HasSubstr("the shape is [4] on rank 3 and [4, 2] on rank 5"));
}

TEST_F(NegotiationTest, JoinedRanksAreReadyForReductionsOnly) {
  Negotiation negotiation({0, 1, 2}, 0);
  EXPECT_THAT(NamesOf(Cycle(negotiation, {Says({Reduce("a")}), Joined(), Says({})})), IsEmpty());
  Request gather = Reduce("g");
  gather.kind = Kind::kAllgather;
  auto decision = Cycle(negotiation, {Says({gather}), Joined(), Says({Reduce("a"), gather})});
  EXPECT_THAT(NamesOf(decision), ElementsAre("a", "g"));
  EXPECT_EQ(decision.ready[0].error, "");
  EXPECT_THAT(decision.ready[1].error, HasSubstr("rank 1 has called Join"));
  decision = Cycle(negotiation, {Says({}), Joined(), Joined()});
  EXPECT_EQ(decision.last_joined, std::nullopt);
  decision = Cycle(negotiation, {Joined(), Joined(), Joined()});
  EXPECT_EQ(decision.last_joined, 0);
  EXPECT_EQ(Cycle(negotiation, {Says({}), Says({}), Says({})}).last_joined, std::nullopt);
}

TEST_F(NegotiationTest, NamesTensorThatRanksNeverSubmit) {
  Negotiation negotiation({0, 4, 8}, 4);
  Cycle(negotiation, {Says({Reduce("a")}), Says({}), Says({})});
  now_ += milliseconds(61'000);
  const std::vector<Stall> stalls = negotiation.Stalls(now_);
  ASSERT_THAT(stalls, SizeIs(1));
  EXPECT_THAT(stalls[0].missing, ElementsAre(4, 8));
  EXPECT_THAT(StallText(stalls[0]),
              HasSubstr("ranks 4, 8 have not submitted 'a' (allreduce) for 61 s"));
  RankMessage gives_up;
  gives_up.gives_up = true;
  const auto decision = Cycle(negotiation, {Says({}), gives_up, Says({})});
  ASSERT_TRUE(decision.stalled);
  EXPECT_THAT(*decision.stalled, HasSubstr("ranks 4, 8"));
}

TEST_F(NegotiationTest, ReportsRankThatLeft) {
  Negotiation negotiation({0, 1}, 4);
  RankMessage leaving;
  leaving.leaving = true;
  EXPECT_EQ(Cycle(negotiation, {Says({Reduce("a")}), leaving}).left, 1);
}

TEST(FuseTest, KeepsDtypesApartAndLimitsSize) {
  std::vector<Response> responses;
  for (int i = 0; i < 5; ++i) responses.push_back({.request = Reduce("f", {100})});
  responses[2].request.tensors[0].dtype = at::kDouble;
  EXPECT_THAT(Fuse(responses, 1 << 20),
              ElementsAre(ElementsAre(Piece{0, 0}, Piece{1, 0}, Piece{3, 0}, Piece{4, 0}),
                          ElementsAre(Piece{2, 0})));
  EXPECT_THAT(Fuse(responses, 800), ElementsAre(SizeIs(2), SizeIs(1), SizeIs(2)));
  EXPECT_THAT(Fuse(responses, 0), SizeIs(5));
}

TEST(FuseTest, KeepsGroupTogether) {
  Response group{.request = Reduce("g", {100})};
  for (int i = 0; i < 3; ++i) group.request.tensors.push_back({{100}, at::kFloat});
  EXPECT_THAT(Fuse({group, {.request = Reduce("a")}}, 500), ElementsAre(SizeIs(4), SizeIs(1)));
}

TEST(RequestTest, EncodedRequestsDecodeUnchanged) {
  Request request = Reduce("na\"me\n", {3, 0, 7});
  request.kind = Kind::kAlltoall;
  request.op = Op::kMax;
  request.root = 3;
  request.prescale_factor = 1.0 / 3;
  request.splits = {1, 2};
  EXPECT_THAT(DecodeRequests(EncodeRequests({request, Reduce("b")})),
              ElementsAre(request, Reduce("b")));
  for (const char* text : {"", "{}[", "[[1]]", R"([[0,"x",0,1,1,0,[["f",[1]]],[]]])"}) {
    ExpectRefused([&] { DecodeRequests(text); }, ExitCode::kInternal, HasSubstr("cannot be read"));
  }
}

}  // namespace
}  // namespace dslaunch::horovod
