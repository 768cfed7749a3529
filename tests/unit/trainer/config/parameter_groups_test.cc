#include "trainer/config/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/train_error.h"

namespace dslaunch::parameter_groups_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<ParameterInfo> kModel = {
    {"h.0.attn.weight", 2}, {"h.0.attn.bias", 1}, {"h.0.ln.weight", 1}, {"head.weight", 2}};

ParameterGroupConfig Named(std::vector<std::string> names) {
  ParameterGroupConfig group;
  group.names = std::move(names);
  return group;
}

ParameterGroupConfig UpTo(int64_t dims) {
  ParameterGroupConfig group;
  group.max_dims = dims;
  return group;
}

TEST(ParameterGroupsTest, PutsAllParametersTogetherWithoutGroups) {
  EXPECT_THAT(AssignParameterGroups({}, kModel), ElementsAre(0, 0, 0, 0));
}

TEST(ParameterGroupsTest, AssignsParameterToFirstMatchingGroup) {
  EXPECT_THAT(AssignParameterGroups({UpTo(1), Named({"h.*"})}, kModel), ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(AssignParameterGroups({Named({"head.*", "*.bias"})}, kModel),
              ElementsAre(1, 0, 1, 0));
}

TEST(ParameterGroupsTest, GroupRequiresAllItsConditions) {
  ParameterGroupConfig both = Named({"h.0.attn.*"});
  both.max_dims = 1;
  EXPECT_THAT(AssignParameterGroups({both}, kModel), ElementsAre(1, 0, 1, 1));
}

TEST(ParameterGroupsTest, RefusesGroupWithoutParameters) {
  try {
    AssignParameterGroups({UpTo(1), Named({"*.biass"})}, kModel);
    FAIL() << "accepted";
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), HasSubstr("engine.optimizer.param_groups[1] matches no parameter"));
    EXPECT_THAT(error.what(), HasSubstr("h.0.attn.bias"));
  }
}

}  // namespace
}  // namespace dslaunch::parameter_groups_test
