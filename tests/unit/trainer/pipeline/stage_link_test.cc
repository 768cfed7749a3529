// Tests messages between two pipeline stages. Ranks are forked, so this test must not start threads
// outside of ranks.
#include "trainer/pipeline/stage_link.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "dslaunch/spawn.h"
#include "tests/support/strict_backend.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/engine/activation_meter.h"

namespace dslaunch::stage_link_test {
namespace {

using testing::HasSubstr;

std::string NameOf(int rank) { return "stage " + std::to_string(rank); }

// Throws if `good` is false. Ranks must throw, because GoogleTest's expectations are lost in a
// forked process.
void Expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

void ExpectSame(const Tensors& got, const Tensors& wanted, const std::string& what) {
  Expect(got.size() == wanted.size(), what + ": as many tensors");
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string which = what + ": tensor " + std::to_string(i);
    Expect(got[i].scalar_type() == wanted[i].scalar_type(), which + " has its dtype");
    Expect(got[i].sizes() == wanted[i].sizes(), which + " has its shape");
    Expect(at::equal(got[i], wanted[i]), which + " has its values");
    Expect(got[i].requires_grad() == wanted[i].requires_grad(), which + " requires a gradient");
    Expect(got[i].is_leaf(), which + " is a leaf");
  }
}

// Runs `body` on two ranks. `strict`: whether all messages between them keep one order.
void InTwoRanks(const std::function<void(ProcessGroup& group, StageLink& link)>& body,
                bool strict = false) {
  Spawn(2, [&](int) {
    ProcessGroup group = InitProcessGroup();
    const auto backend = strict ? StrictBackend::Install(group) : nullptr;
    StageLink link(group, NameOf);
    body(group, link);
    link.Drain();
    if (backend) backend->Compare(group);
    group.Finish();
  });
}

// Makes a random message, which is the same on both ranks.
Tensors RandomMessage(std::mt19937_64& random) {
  constexpr at::ScalarType kDtypes[] = {at::kFloat,    at::kDouble, at::kHalf,
                                        at::kBFloat16, at::kLong,   at::kInt,
                                        at::kByte,     at::kBool,   at::kComplexFloat};
  const auto number = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  Tensors tensors;
  for (int64_t count = 1 + number(4); count > 0; --count) {
    std::vector<int64_t> shape;
    for (int64_t dimensions = number(4); dimensions > 0; --dimensions) shape.push_back(number(6));
    const at::ScalarType dtype = kDtypes[number(std::size(kDtypes))];
    at::Tensor tensor = at::arange(c10::multiply_integers(shape), at::kLong)
                            .mul(number(100) + 1)
                            .remainder(251)
                            .to(dtype)
                            .view(shape);
    if (tensor.dim() > 1 && number(2) == 0) tensor = tensor.transpose(0, 1);
    if (tensor.dim() > 0 && number(4) == 0) {
      std::vector<int64_t> shape_of_two(static_cast<size_t>(tensor.dim()) + 1, -1);
      shape_of_two[0] = 2;
      tensor = tensor.unsqueeze(0).expand(shape_of_two);
    }
    if (tensor.is_floating_point() && number(2) == 0) tensor.requires_grad_(true);
    tensors.push_back(tensor);
  }
  return tensors;
}

constexpr LinkChannel kToOne{.peer = 1}, kFromZero{.peer = 0};
constexpr LinkChannel kGradientToZero{.peer = 0, .gradient = true};
constexpr LinkChannel kGradientFromOne{.peer = 1, .gradient = true};

class StageLinkTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Networks, StageLinkTest, testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Strict" : "Gloo"; });

TEST_P(StageLinkTest, DeliversRandomMessagesUnchanged) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(seed);
  EXPECT_NO_THROW(InTwoRanks(
      [&](ProcessGroup& group, StageLink& link) {
        std::mt19937_64 random(seed);
        Tensors message;
        constexpr int64_t kMessages = 60;
        for (int64_t i = 0; i < kMessages; ++i) {
          // Every second message has the layout of the previous message.
          if (i % 2 == 0) {
            message = RandomMessage(random);
          } else {
            for (at::Tensor& tensor : message) {
              tensor = at::ones_like(tensor).set_requires_grad(tensor.requires_grad());
            }
          }
          if (group.rank() == 0) {
            link.Send(kToOne, message, {i, kMessages});
            link.SendRest(kToOne);
          } else {
            link.BeginReceive(kFromZero, {i, kMessages});
            ExpectSame(link.FinishReceive(kFromZero), message, "message " + std::to_string(i));
          }
        }
      },
      GetParam()));
}

// A receive that begins while an earlier message is in transfer expects the layout of the last
// finished message.
TEST_P(StageLinkTest, AcceptsNewShapesWhileMessagesAreInFlight) {
  EXPECT_NO_THROW(InTwoRanks(
      [](ProcessGroup& group, StageLink& link) {
        const auto message = [](int64_t i) {
          return Tensors{at::full({i < 2 ? 4 : 3 + i / 3, 5}, static_cast<double>(i))};
        };
        constexpr int64_t kMessages = 12;
        const auto place = [](int64_t i) { return LinkMessage{i, kMessages}; };
        if (group.rank() == 0) {
          link.Send(kToOne, message(0), place(0));
          for (int64_t i = 0; i < kMessages; ++i) {
            if (i + 1 < kMessages) link.Send(kToOne, message(i + 1), place(i + 1));
            link.SendRest(kToOne);
          }
        } else {
          link.BeginReceive(kFromZero, place(0));
          for (int64_t i = 0; i < kMessages; ++i) {
            if (i + 1 < kMessages) link.BeginReceive(kFromZero, place(i + 1));
            ExpectSame(link.FinishReceive(kFromZero), message(i), "message " + std::to_string(i));
          }
        }
      },
      GetParam()));
}

TEST_P(StageLinkTest, ReturnsGradientsOfTensorsThatRequireOne) {
  EXPECT_NO_THROW(InTwoRanks(
      [](ProcessGroup& group, StageLink& link) {
        Tensors activations = {at::ones({2, 3}, at::kDouble), at::ones({4}, at::kLong),
                               at::ones({5, 2}), at::ones({0, 7})};
        activations[0].requires_grad_(true);
        activations[3].requires_grad_(true);
        const Tensors gradients = {at::arange(6, at::kDouble).view({3, 2}).t(), at::ones({0, 7})};
        if (group.rank() == 0) {
          link.Send(kToOne, activations, {});
          link.SendRest(kToOne);
          link.BeginReceiveGradients(kGradientFromOne, LayoutOf(activations), {});
          ExpectSame(link.FinishReceive(kGradientFromOne), gradients, "gradients");
        } else {
          link.BeginReceive(kFromZero, {});
          ExpectSame(link.FinishReceive(kFromZero), activations, "activations");
          link.Send(kGradientToZero, gradients, {});
        }
      },
      GetParam()));
}

TEST_P(StageLinkTest, SendsNoGradientsIfNoneIsRequired) {
  EXPECT_NO_THROW(InTwoRanks(
      [](ProcessGroup& group, StageLink& link) {
        if (group.rank() == 0) {
          link.BeginReceiveGradients(kGradientFromOne, LayoutOf({at::ones({3})}), {});
          Expect(link.FinishReceive(kGradientFromOne).empty(), "there are no gradients");
        } else {
          link.Send(kGradientToZero, {}, {});
        }
      },
      GetParam()));
}

TEST(StageLinkOnGlooTest, AllowsChangingReceivedTensorsInPlace) {
  EXPECT_NO_THROW(InTwoRanks([](ProcessGroup& group, StageLink& link) {
    if (group.rank() == 0) {
      link.Send(kToOne, {at::ones({3}), at::ones({2})}, {});
      link.SendRest(kToOne);
      return;
    }
    link.BeginReceive(kFromZero, {});
    const Tensors received = link.FinishReceive(kFromZero);
    const at::Tensor weight = at::ones({3}).requires_grad_(true);
    received[0].mul_(weight);  // requires a gradient afterwards
    received[0].sum().backward();
    ExpectSame({weight.grad()}, {at::ones({3})}, "the gradient");
    ExpectSame({received[1]}, {at::ones({2})}, "the other tensor");
  }));
}

TEST(StageLinkOnGlooTest, SenderContinuesBeforeReceive) {
  EXPECT_NO_THROW(InTwoRanks([](ProcessGroup& group, StageLink& link) {
    const at::Tensor large = at::ones({1 << 20});
    if (group.rank() == 0) {
      link.Send(kToOne, {large}, {0, 2});
      link.SendRest(kToOne);
      link.Send(kToOne, {large}, {1, 2});
      link.SendRest(kToOne);
      group.store()->set("sent", std::vector<uint8_t>{1});
      return;
    }
    group.store()->wait({"sent"}, std::chrono::seconds(10));
    for (int64_t i = 0; i < 2; ++i) {
      link.BeginReceive(kFromZero, {i, 2});
      ExpectSame(link.FinishReceive(kFromZero), {large}, "the tensor");
    }
  }));
}

TEST(StageLinkOnGlooTest, FreesMemoryOfSentMessages) {
  EXPECT_NO_THROW(InTwoRanks([](ProcessGroup& group, StageLink& link) {
    const at::Tensor large = at::ones({1 << 18});
    const ActivationMeter meter;
    int64_t most = 0;
    constexpr int64_t kMessages = 40;
    for (int64_t i = 0; i < kMessages; ++i) {
      if (group.rank() == 0) {
        link.Send(kToOne, {large}, {i, kMessages});
        link.SendRest(kToOne);
        most = std::max(most, meter.live_bytes());
      } else {
        link.BeginReceive(kFromZero, {i, kMessages});
        link.FinishReceive(kFromZero);
      }
    }
    Expect(most < 8 * static_cast<int64_t>(large.nbytes()), "no more than a few are held");
  }));
}

// Expects the receiver of `expected` to throw an error with `words` if the sender sends `sent`.
void ExpectDisagreement(const LinkMessage& sent, const LinkMessage& expected,
                        const std::string& words) {
  EXPECT_NO_THROW(InTwoRanks([&](ProcessGroup& group, StageLink& link) {
    if (group.rank() == 0) {
      link.Send(kToOne, {at::ones({3})}, sent);
      return;
    }
    link.BeginReceive(kFromZero, expected);
    try {
      link.FinishReceive(kFromZero);
    } catch (const TrainError& error) {
      Expect(std::string(error.what()).find(words) != std::string::npos, error.what());
      return;
    }
    Expect(false, "it is refused");
  }));
}

TEST(StageLinkOnGlooTest, NamesStagesThatDisagreeOnTheBatch) {
  ExpectDisagreement({0, 4}, {0, 8},
                     "stage 0 has a batch of 4 micro-batches, but stage 1 has a batch of 8;");
  ExpectDisagreement({1, 4}, {2, 4}, "stage 0 sent micro-batch 2, but stage 1 expects 3");
}

TEST(StageLinkOnGlooTest, NamesLostRank) {
  EXPECT_NO_THROW(Spawn(2, [](int) {
    ProcessGroup group = InitProcessGroup();
    group.Barrier();  // rank 1 cannot start without the store, which rank 0 hosts
    if (group.rank() == 0) _exit(0);
    StageLink link(group, NameOf);
    try {
      link.BeginReceive(kFromZero, {2, 4});
      link.FinishReceive(kFromZero);
    } catch (const std::exception& error) {
      const std::string what = error.what();
      Expect(what.starts_with("waiting for the activations of micro-batch 3 of 4 from stage 0: "),
             what);
      Expect(ClassifyCommFailure(what) == CommFailure::kPeerLost, what);
      _exit(0);
    }
    Expect(false, "a message came from nowhere");
  }));
}

}  // namespace
}  // namespace dslaunch::stage_link_test
