// Tests which samples are read by a run that is stopped and continues with another batch size or
// number of ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "trainer/data/sampler.h"
#include "trainer/train/train_batches.h"

namespace dslaunch::resumed_samples_test {
namespace {

// A dataset whose sample i is the number i.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return {1}; }
  Batch Fetch(std::span<const int64_t> indices) const override {
    const at::Tensor rows = at::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()));
    return {rows.to(at::kFloat).unsqueeze(1), rows};
  }

 private:
  int64_t size_;
};

struct Layout {
  int ranks = 1;
  int64_t micro = 1;
  int64_t accumulation = 1;
  bool drop_last = false;             // drop_last of the sampler
  bool dataloader_drop_last = false;  // dataloader_drop_last of the engine
  int64_t steps = 1;                  // number of steps until the run is stopped
};

Recipe RecipeOf(const Layout& layout, bool shuffle, int64_t prefetch) {
  Recipe recipe;
  recipe.engine.batch = {layout.micro * layout.accumulation * layout.ranks, layout.micro,
                         layout.accumulation};
  recipe.engine.dataloader_drop_last = layout.dataloader_drop_last;
  recipe.data.shuffle = shuffle;
  recipe.data.drop_last = layout.drop_last;
  recipe.data.prefetch = prefetch;
  recipe.run.steps = 1000;
  recipe.run.seed = 5;
  return recipe;
}

// Reads with one layout after the other. Returns the samples in the order in which they were read,
// over all ranks. Samples of a micro-batch are in the order of their positions.
std::vector<int64_t> Read(const std::vector<Layout>& layouts, int64_t samples, bool shuffle,
                          int64_t prefetch) {
  const Numbers data(samples);
  std::vector<int64_t> order;
  Position position;
  for (const Layout& layout : layouts) {
    const Recipe recipe = RecipeOf(layout, shuffle, prefetch);
    const Schedule schedule = MakeSchedule(recipe, samples, layout.ranks, position);
    std::vector<std::unique_ptr<BatchLoader>> loaders;
    for (int rank = 0; rank < layout.ranks; ++rank) {
      loaders.push_back(std::make_unique<BatchLoader>(
          data, TrainBatchOptions(recipe, samples, rank, layout.ranks, schedule)));
    }
    for (int64_t i = 0; i < layout.steps * layout.accumulation; ++i) {
      std::vector<at::Tensor> parts;
      for (const auto& loader : loaders) parts.push_back(loader->Next().targets);
      const at::Tensor together = at::stack(parts, 1).flatten();
      const int64_t* read = together.const_data_ptr<int64_t>();
      order.insert(order.end(), read, read + together.numel());
    }
    position = schedule.PositionAfter(position.step + layout.steps);
  }
  return order;
}

// Returns the samples in DistributedSampler's order on one rank, one epoch after the other.
std::vector<int64_t> Epochs(int64_t samples, bool shuffle, int64_t count) {
  DistributedSampler sampler({.num_samples = samples, .shuffle = shuffle, .seed = 5});
  std::vector<int64_t> order;
  for (int64_t epoch = 0; epoch < count; ++epoch) {
    sampler.SetEpoch(epoch);
    for (const int64_t index : sampler.Indices()) order.push_back(index);
  }
  return order;
}

void ExpectInOrder(const std::vector<int64_t>& read, int64_t samples, bool shuffle) {
  std::vector<int64_t> expected =
      Epochs(samples, shuffle, static_cast<int64_t>(read.size()) / samples + 1);
  expected.resize(read.size());
  EXPECT_EQ(read, expected);
}

TEST(ResumedSamplesTest, ContinuesAtNextSampleWithOtherBatchSize) {
  // 20 samples are read in steps of 4. Steps of 12 then begin at sample 20, not at sample 12.
  const std::vector<Layout> layouts = {{.micro = 4, .steps = 5}, {.micro = 12, .steps = 5}};
  for (const bool shuffle : {true, false})
    ExpectInOrder(Read(layouts, 60, shuffle, 2), 60, shuffle);
}

TEST(ResumedSamplesTest, ContinuesIfRestOfEpochIsBelowOneStep) {
  const std::vector<Layout> layouts = {{.micro = 7, .steps = 5}, {.micro = 10, .steps = 3}};
  // The first run reads 35 samples, the second 3, 10 and 10.
  ExpectInOrder(Read(layouts, 38, true, 0), 38, true);
}

TEST(ResumedSamplesTest, ContinuesAtNextSampleWithOtherRanks) {
  for (const bool shuffle : {true, false}) {
    ExpectInOrder(Read({{.ranks = 2, .micro = 5, .steps = 3}, {.ranks = 3, .micro = 2, .steps = 9}},
                       60, shuffle, 2),
                  60, shuffle);
  }
}

// For any sequence of layouts, each sample of an epoch is read once. The exceptions are samples
// that the end of an epoch drops or repeats, as in every layout.
TEST(ResumedSamplesTest, ReadsEverySampleOfEpochOnce) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto upto = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int round = 0; round < 300; ++round) {
    const int64_t samples = 40 + upto(80);
    std::vector<Layout> layouts;
    const int64_t count = 2 + upto(3);
    for (int64_t i = 0; i < count; ++i) {
      layouts.push_back({.ranks = static_cast<int>(upto(4)),
                         .micro = upto(5),
                         .accumulation = upto(2),
                         .drop_last = random() % 2 == 0,
                         .dataloader_drop_last = random() % 2 == 0,
                         .steps = upto(4)});
    }
    const bool shuffle = random() % 2 == 0;
    // At most 4 layouts of 4 steps of 40 samples are read, so that some runs end in the first epoch
    // and some in later epochs.
    const std::vector<int64_t> read = Read(layouts, samples, shuffle, /*prefetch=*/round % 3);
    const std::vector<int64_t> epoch = Epochs(samples, shuffle, 1);
    // Dropped tails of steps are not compared.
    const size_t in_first = std::min(read.size(), epoch.size() - 4 * 5);
    EXPECT_TRUE(
        std::equal(read.begin(), read.begin() + static_cast<ptrdiff_t>(in_first), epoch.begin()))
        << "round " << round;
  }
}

TEST(ResumedSamplesTest, EndsEpochWithoutWholeBatchLeft) {
  const Layout first = {.micro = 9, .steps = 4},
               second = {.micro = 8, .dataloader_drop_last = true};
  const Position position = MakeSchedule(RecipeOf(first, true, 0), 40, 1).PositionAfter(4);
  EXPECT_EQ(position.samples_in_epoch, 36);
  const Schedule schedule = MakeSchedule(RecipeOf(second, true, 0), 40, 1, position);
  EXPECT_EQ(schedule.EpochOf(5), 2);
  EXPECT_EQ(schedule.PositionAfter(5).epoch, 1);
  EXPECT_EQ(schedule.PositionAfter(5).samples_in_epoch, 8);
}

}  // namespace
}  // namespace dslaunch::resumed_samples_test
