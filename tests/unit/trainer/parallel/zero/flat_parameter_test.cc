#include "trainer/parallel/zero/flat_parameter.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace dslaunch::flat_parameter_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<size_t>> Members(const std::vector<FlatParameter>& units) {
  std::vector<std::vector<size_t>> members;
  for (const FlatParameter& unit : units) members.push_back(unit.parameters);
  return members;
}

ZeroConfig Stage(int stage, int64_t param_persistence_threshold = 0,
                 int64_t model_persistence_threshold = 1'000'000) {
  ZeroConfig zero;
  zero.stage = stage;
  zero.param_persistence_threshold = param_persistence_threshold;
  zero.model_persistence_threshold = model_persistence_threshold;
  return zero;
}

std::vector<int64_t> Elements(const std::vector<ShardedParameter>& parameters) {
  std::vector<int64_t> elements;
  for (const ShardedParameter& parameter : parameters) elements.push_back(parameter.elements);
  return elements;
}

const std::vector<ShardedParameter> kModel = {{.name = "wte.weight", .elements = 1000},
                                              {.name = "h.0.fc.weight", .elements = 300},
                                              {.name = "h.0.fc.bias", .elements = 30},
                                              {.name = "h.1.fc.weight", .elements = 300},
                                              {.name = "h.1.fc.bias", .elements = 30}};

TEST(FlatParameterTest, CutsBucketsInReverseOrder) {
  const auto units = CutIntoUnits(kModel, Stage(2), 350, 2);
  EXPECT_THAT(Members(units), ElementsAre(ElementsAre(4, 3), ElementsAre(2, 1), ElementsAre(0)));
  EXPECT_THAT(units[0].offsets, ElementsAre(0, 30));
  EXPECT_EQ(units[0].elements, 330);
  EXPECT_EQ(units[0].shard_elements, 176) << "165 rounded up to a multiple of 16";
  EXPECT_TRUE(units[0].persistent);
  EXPECT_EQ(units[2].shard_elements, 512) << "more than a bucket";
}

TEST(FlatParameterTest, ShardsFrozenParametersOnlyAtStage3) {
  auto model = kModel;
  model[1].trained = false;
  EXPECT_THAT(Members(CutIntoUnits(model, Stage(1), 10000, 2)),
              ElementsAre(ElementsAre(4, 3, 2, 0)));
  const ZeroConfig all = Stage(3);
  const auto units = CutIntoUnits(model, all, 10000, 2);
  EXPECT_THAT(Members(units),
              ElementsAre(ElementsAre(4, 3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  EXPECT_TRUE(units[1].trained);
  EXPECT_FALSE(units[2].trained);
}

TEST(FlatParameterTest, KeepsDtypesInSeparateUnits) {
  auto model = kModel;
  model[3].dtype = 1;
  EXPECT_THAT(Members(CutIntoUnits(model, Stage(2), 10000, 2)),
              ElementsAre(ElementsAre(3), ElementsAre(4, 2, 1, 0)))
      << "in the order in which they are complete";
}

// A weight that pipeline stages share is divided in the same way on all of them, whatever their
// other parameters are.
TEST(FlatParameterTest, PutsTiedParameterIntoSeparateUnit) {
  auto model = kModel;
  model[2].alone = true;
  for (const int stage : {1, 2, 3}) {
    const auto units = CutIntoUnits(model, Stage(stage, stage == 3 ? 50 : 0), 10000, 2);
    const auto own = std::ranges::find(units, std::vector<size_t>{2}, &FlatParameter::parameters);
    ASSERT_NE(own, units.end()) << "stage " << stage;
    EXPECT_EQ(own->shard_elements, 16);
  }
  EXPECT_THAT(Members(CutIntoUnits(model, Stage(1), 10000, 2)),
              ElementsAre(ElementsAre(2), ElementsAre(4, 3, 1, 0)));
  model[1].alone = true;
  EXPECT_THAT(Members(CutIntoUnits(model, Stage(3), 10000, 2)),
              ElementsAre(ElementsAre(4, 3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
}

TEST(FlatParameterTest, CutsModulesAtStage3KeepingSmallParametersWhole) {
  const auto units = CutIntoUnits(kModel, Stage(3, 31), 10000, 4);
  EXPECT_THAT(Members(units),
              ElementsAre(ElementsAre(3), ElementsAre(4, 2), ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT((std::vector<std::string>{units[0].name, units[1].name}),
              ElementsAre("h.1.fc", "h.1.fc.bias ..."));
  EXPECT_FALSE(units[0].persistent);
  EXPECT_TRUE(units[1].persistent);
  const auto few = CutIntoUnits(kModel, Stage(3, 31, 45), 10000, 4);
  EXPECT_THAT(Members(few),
              ElementsAre(ElementsAre(4), ElementsAre(3), ElementsAre(2, 1), ElementsAre(0)));
}

// For any number of ranks, the pieces cover every element of every parameter once, at its position
// in the flat tensor.
TEST(FlatParameterTest, PiecesCoverEveryElementOnce) {
  for (const int world_size : {1, 2, 3, 4, 7, 64}) {
    for (const int stage : {1, 2, 3}) {
      const ZeroConfig zero = Stage(stage, 100);
      std::vector<int64_t> next(kModel.size());
      for (const FlatParameter& unit : CutIntoUnits(kModel, zero, 500, world_size)) {
        EXPECT_EQ(unit.shard_elements % kShardAlignment, 0);
        EXPECT_GE(unit.shard_elements * world_size, unit.elements);
        EXPECT_LT(unit.shard_elements * world_size,
                  unit.elements + world_size * (kShardAlignment + 1));
        for (int rank = 0; rank < world_size; ++rank) {
          for (const ShardPiece& piece : PiecesOf(unit, Elements(kModel), rank)) {
            EXPECT_TRUE(piece.shard.contiguous());
            EXPECT_EQ(piece.shard.start, next[piece.tensor]);
            EXPECT_GT(piece.shard.elements(), 0);
            next[piece.tensor] = piece.shard.stop;
            const auto place =
                std::find(unit.parameters.begin(), unit.parameters.end(), piece.tensor) -
                unit.parameters.begin();
            EXPECT_EQ(rank * unit.shard_elements + piece.at,
                      unit.offsets[static_cast<size_t>(place)] + piece.shard.start);
          }
        }
      }
      EXPECT_EQ(next, Elements(kModel)) << "world " << world_size << ", stage " << stage;
    }
  }
}

TEST(FlatParameterTest, EmptyParameterHasNoPiece) {
  const auto units = CutIntoUnits({{.name = "none", .elements = 0}}, Stage(2), 10, 2);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].shard_elements, kShardAlignment);
  EXPECT_TRUE(PiecesOf(units[0], {0}, 0).empty());
}

}  // namespace
}  // namespace dslaunch::flat_parameter_test
