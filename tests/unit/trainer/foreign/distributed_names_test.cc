#include "trainer/foreign/distributed_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::distributed_names_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns a key whose nested dicts end after `outer`.
DistributedKey Key(const std::string& outer, const std::string& last) {
  return {outer + last, outer.size()};
}

TEST(DistributedNamesTest, NamesTensorsOfGetStateDict) {
  const DistributedNames result =
      NamesOf({Key("model.", "fc.weight"), Key("optim.state.fc.weight.", "exp_avg"),
               Key("optim.state.fc.weight.", "step"), Key("", "step")},
              "", "c");
  EXPECT_THAT(result.names, ElementsAre("fc.weight", "optimizer/exp_avg/fc.weight", "", ""));
  EXPECT_THAT(result.updates, ElementsAre(2));
  EXPECT_EQ(result.step, 3);
  EXPECT_THAT(result.notes, ElementsAre("names are without model."));
}

TEST(DistributedNamesTest, NamesTensorsOfTorchtitan) {
  const DistributedNames result =
      NamesOf({Key("", "model.fc.weight"), Key("", "model.fc.bias"),
               Key("optimizer.", "state.model.fc.weight.exp_avg_sq"), Key("train_state.", "step")},
              "", "c");
  EXPECT_THAT(result.names, ElementsAre("model.fc.weight", "model.fc.bias",
                                        "optimizer/exp_avg_sq/model.fc.weight", ""));
  EXPECT_EQ(result.step, 3);
  EXPECT_THAT(result.notes, IsEmpty());
}

TEST(DistributedNamesTest, NamesTensorsOfAppState) {
  const DistributedNames result =
      NamesOf({Key("app.model.", "w"), Key("app.optim.state.w.", "momentum_buffer")}, "", "c");
  EXPECT_THAT(result.names, ElementsAre("w", "optimizer/momentum_buffer/w"));
}

TEST(DistributedNamesTest, NotesTensorsThatAreNotTheModels) {
  const DistributedNames result = NamesOf(
      {Key("model.", "w"), Key("ema.", "w"), {"optim.param_groups.0.lr", 0, false}}, "", "c");
  EXPECT_THAT(result.names, ElementsAre("w", "", ""));
  EXPECT_THAT(
      result.notes,
      ElementsAre("1 value that is not a tensor was not read, such as optim.param_groups.0.lr",
                  "1 tensor with 'ema.' was not read", "names are without model."));
}

TEST(DistributedNamesTest, PrefixChoosesOtherWeights) {
  const DistributedNames result = NamesOf({Key("model.", "w"), Key("ema.", "w")}, "ema.", "c");
  EXPECT_THAT(result.names, ElementsAre("", "w"));
}

TEST(DistributedNamesTest, NotesStateOfUnknownParameters) {
  const DistributedNames result =
      NamesOf({Key("model.", "w"), Key("optimizer.state.0.", "exp_avg")}, "", "c");
  EXPECT_THAT(result.names, ElementsAre("w", ""));
  EXPECT_THAT(result.notes,
              testing::Contains(HasSubstr("1 parameter that the model does not have")));
}

TEST(DistributedNamesTest, RefusesUnclearPrefix) {
  const auto refuses = [](const std::vector<DistributedKey>& keys, const std::string& prefix,
                          const std::string& message) {
    ExpectRefused([&] { NamesOf(keys, prefix, "c"); }, ExitCode::kBadInput, HasSubstr(message));
  };
  refuses({Key("net.", "w"), Key("ema.", "w")}, "",
          "c: has tensors under 2 names; choose the model's with --prefix: ema. (1 tensor), net. "
          "(1 tensor)");
  refuses({Key("model.", "w")}, "net.", "no tensor with the prefix 'net.'");
  refuses({Key("optimizer.state.w.", "exp_avg")}, "", "only the optimizer's state");
}

}  // namespace
}  // namespace dslaunch::distributed_names_test
