#include "trainer/data/loader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::loader_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A dataset whose sample i has the value i. Counts reads, and fails or blocks at chosen samples.
class NumberDataset : public Dataset {
 public:
  explicit NumberDataset(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return {1}; }
  Batch Fetch(std::span<const int64_t> indices) const override {
    std::unique_lock lock(mutex_);
    ++fetches_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    for (const int64_t index : indices) {
      if (index == fails_at_) throw TrainError(ExitCode::kBadInput, "sample is damaged");
    }
    const at::Tensor values = at::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()));
    return {values.to(at::kFloat).unsqueeze(1), values};
  }

  void FailAt(int64_t index) { fails_at_ = index; }
  void Close() { SetOpen(false); }
  void Open() { SetOpen(true); }
  int fetches() const {
    const std::lock_guard lock(mutex_);
    return fetches_;
  }
  // Waits until `count` samples have been read. Returns false after a minute.
  bool WaitForFetches(int count) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return fetches_ >= count; });
  }

 private:
  void SetOpen(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  int64_t size_;
  int64_t fails_at_ = -1;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int fetches_ = 0;
  bool open_ = true;
};

BatchLoader::Options Options(int64_t samples, int64_t batch_size, int64_t prefetch) {
  const int64_t per_rank = SamplesPerRank(samples, 2, false);
  return {.sampler = {.num_samples = samples, .rank = 1, .world_size = 2, .seed = 3},
          .batch_size = batch_size,
          .batches_per_epoch = (per_rank + batch_size - 1) / batch_size,
          .first_batch = 0,
          .last_batch = 1000,
          .prefetch = prefetch};
}

std::vector<int64_t> Values(const Batch& batch) {
  const int64_t* values = batch.targets.const_data_ptr<int64_t>();
  return {values, values + batch.targets.numel()};
}

std::vector<std::vector<int64_t>> Take(BatchLoader& loader, int64_t count) {
  std::vector<std::vector<int64_t>> batches;
  while (count-- > 0) batches.push_back(Values(loader.Next()));
  return batches;
}

TEST(LoaderTest, BatchesFollowSampler) {
  const NumberDataset dataset(23);
  BatchLoader loader(dataset, Options(23, 5, 2));
  DistributedSampler sampler(Options(23, 5, 2).sampler);
  for (const int64_t epoch : {0, 1, 2}) {
    sampler.SetEpoch(epoch);
    std::vector<int64_t> seen;
    std::vector<size_t> sizes;
    for (const std::vector<int64_t>& batch : Take(loader, 3)) {
      seen.insert(seen.end(), batch.begin(), batch.end());
      sizes.push_back(batch.size());
    }
    EXPECT_EQ(seen, sampler.Indices()) << "epoch " << epoch;
    EXPECT_THAT(sizes, ElementsAre(5, 5, 2));
  }
}

TEST(LoaderTest, OrderIsTheSameWithPrefetch) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const int64_t samples = 2 + random() % 50;
    const int64_t batch_size = 1 + random() % 7;
    const NumberDataset dataset(samples);
    BatchLoader plain(dataset, Options(samples, batch_size, 0));
    const auto expected = Take(plain, 40);
    for (const int64_t prefetch : {1, 4}) {
      BatchLoader ahead(dataset, Options(samples, batch_size, prefetch));
      EXPECT_EQ(Take(ahead, 40), expected) << samples << " samples, batches of " << batch_size;
    }
    BatchLoader::Options some = Options(samples, batch_size, 3);
    some.last_batch = random() % 40;  // the remaining batches are read on request
    BatchLoader loader(dataset, some);
    EXPECT_EQ(Take(loader, 40), expected) << "the first " << some.last_batch << " read ahead";
  }
}

TEST(LoaderTest, ResumesInTheMiddleOfAnEpoch) {
  const NumberDataset dataset(23);
  BatchLoader whole(dataset, Options(23, 5, 0));
  const auto expected = Take(whole, 12);
  for (const int64_t prefetch : {0, 1, 4}) {
    for (const int64_t first : {1, 3, 5, 7}) {
      BatchLoader::Options options = Options(23, 5, prefetch);
      options.first_batch = first;
      options.first_sample = first % options.batches_per_epoch * 2 * 5;
      BatchLoader resumed(dataset, options);
      EXPECT_EQ(Take(resumed, 12 - first),
                decltype(expected)(expected.begin() + first, expected.end()))
          << "from " << first << " on, prefetch " << prefetch;
    }
  }
}

TEST(LoaderTest, EvaluationReadsEachSampleOnce) {
  const NumberDataset dataset(7);
  for (const int64_t prefetch : {0, 1, 4}) {
    BatchLoader loader(dataset, EvaluationIndices(7, 0, 3), 2, prefetch);
    EXPECT_THAT(Take(loader, 2), ElementsAre(ElementsAre(0, 3), ElementsAre(6)));
    EXPECT_THROW(loader.Next(), std::out_of_range);
    BatchLoader none(dataset, EvaluationIndices(1, 2, 3), 2, prefetch);
    EXPECT_THROW(none.Next(), std::out_of_range);
  }
}

TEST(LoaderTest, ReadsAheadByPrefetchAtMost) {
  const NumberDataset dataset(100);
  BatchLoader::Options options = Options(100, 1, 3);
  BatchLoader loader(dataset, options);
  ASSERT_TRUE(dataset.WaitForFetches(3)) << "reads before it is asked";
  Take(loader, 2);
  ASSERT_TRUE(dataset.WaitForFetches(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(dataset.fetches(), 5) << "no more than three are ready";

  const NumberDataset other(100);
  options.last_batch = 2;
  BatchLoader ends(other, options);
  Take(ends, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(other.fetches(), 2);

  const NumberDataset third(100);
  const BatchLoader lazy(third, Options(100, 1, 0));
  EXPECT_EQ(third.fetches(), 0);
}

TEST(LoaderTest, ThrowsErrorWithItsBatch) {
  NumberDataset dataset(20);
  BatchLoader::Options options = Options(20, 2, 0);
  options.sampler.shuffle = false;  // batches of rank 1: 1 3, 5 7, 9 11, ...
  dataset.FailAt(9);
  for (const int64_t prefetch : {0, 1, 4}) {
    options.prefetch = prefetch;
    BatchLoader loader(dataset, options);
    EXPECT_THAT(Take(loader, 2), ElementsAre(ElementsAre(1, 3), ElementsAre(5, 7)));
    for (int i = 0; i < 2; ++i) {
      ExpectRefused([&] { loader.Next(); }, ExitCode::kBadInput, HasSubstr("damaged"));
    }
  }
}

TEST(LoaderTest, DestructorEndsThreadInEveryState) {
  NumberDataset dataset(100);
  {
    BatchLoader full(dataset, Options(100, 1, 2));
    ASSERT_TRUE(dataset.WaitForFetches(2));
  }
  { BatchLoader just_begun(dataset, Options(100, 1, 2)); }
  dataset.FailAt(0);
  { BatchLoader failed(dataset, Options(100, 1, 100)); }

  // The loader is destroyed while it reads the middle of a batch.
  const int before = dataset.fetches();
  dataset.Close();
  std::optional<BatchLoader> reading(std::in_place, dataset, Options(100, 1, 2));
  ASSERT_TRUE(dataset.WaitForFetches(before + 1));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    dataset.Open();
  });
  reading.reset();
  opener.join();
  EXPECT_EQ(dataset.fetches(), before + 1) << "no further batch is begun";
}

// The meta device stands for any device other than the CPU.
TEST(LoaderTest, BatchesAreOnRequestedDevice) {
  const NumberDataset data(4);
  for (const int64_t prefetch : {0, 2}) {
    BatchLoader loader(data, {.sampler = {.num_samples = 4},
                              .batch_size = 2,
                              .batches_per_epoch = 2,
                              .last_batch = 2,
                              .prefetch = prefetch,
                              .device = c10::kMeta});
    const Batch batch = loader.Next();
    EXPECT_EQ(batch.inputs.device().type(), c10::kMeta);
    EXPECT_EQ(batch.targets.device().type(), c10::kMeta);
    EXPECT_EQ(batch.inputs.size(0), 2);
  }
}

TEST(LoaderTest, ReportsWaitingTime) {
  NumberDataset dataset(100);
  for (const int64_t prefetch : {0, 2}) {
    const int before = dataset.fetches();
    dataset.Close();
    BatchLoader loader(dataset, Options(100, 1, prefetch));
    EXPECT_EQ(loader.waited_s(), 0);
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      dataset.Open();
    });
    loader.Next();
    opener.join();
    EXPECT_GT(loader.waited_s(), 0) << "prefetch " << prefetch;
    EXPECT_LE(loader.waited_s(), 60);
    EXPECT_GT(dataset.fetches(), before);
  }
}

}  // namespace
}  // namespace dslaunch::loader_test
