#include "trainer/mesh/model_cut.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dslaunch::model_cut_test {
namespace {

// A parameter of a small model: its name, the stages that hold it, and whether it is divided.
struct Parameter {
  std::string name;
  std::vector<int> stages;
  bool divided = false;
};

const std::vector<Parameter> kParameters = {
    {"embedding", {0, 2}, true}, {"norm", {1}}, {"up", {1}, true}, {"bias", {1, 2}}};

bool Holds(const Parameter& parameter, int stage) {
  return std::find(parameter.stages.begin(), parameter.stages.end(), stage) !=
         parameter.stages.end();
}

ModelCut CutOfStage(int stage) {
  ModelCut cut;
  for (const Parameter& parameter : kParameters) {
    if (!Holds(parameter, stage)) continue;
    if (parameter.stages.size() > 1) cut.tied.push_back({parameter.name, parameter.stages});
    if (parameter.divided) cut.divided[parameter.name] = {};
  }
  return cut;
}

TEST(ModelCutTest, CountsEveryElementOfAReplicaOnce) {
  const Mesh mesh{.pipeline = 3, .data = 2, .tensor = 2};
  for (const Parameter& parameter : kParameters) {
    // Number of elements counted for each replica.
    std::vector<int> counted(static_cast<size_t>(mesh.data));
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const MeshPlace place = mesh.PlaceOf(rank);
      if (!Holds(parameter, place.stage)) continue;
      const bool counts = CutOfStage(place.stage).Counts(parameter.name, place);
      counted[static_cast<size_t>(place.replica)] += counts ? 1 : 0;
      EXPECT_TRUE(!counts || place.stage == parameter.stages.front()) << parameter.name;
    }
    for (const int times : counted) EXPECT_EQ(times, parameter.divided ? 2 : 1) << parameter.name;
  }
}

TEST(ModelCutTest, LeavesOutCopiesOfParts) {
  ModelCut cut;
  cut.divided["own"] = {};
  cut.divided["copy"].is_copy = true;
  EXPECT_TRUE(cut.Counts("own", {.part = 1}));
  EXPECT_FALSE(cut.Counts("copy", {.part = 1}));
}

TEST(ModelCutTest, CountsTiedBuffersOnTheFirstStage) {
  const ModelCut cut{.tied = {}, .tied_buffers = {{"mean", {1, 3}}}};
  EXPECT_TRUE(cut.Counts("mean", {.stage = 1}));
  EXPECT_FALSE(cut.Counts("mean", {.stage = 3}));
}

}  // namespace
}  // namespace dslaunch::model_cut_test
