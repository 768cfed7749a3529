#include "trainer/data/dataset.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"
#include "trainer/data/loader.h"

namespace dslaunch::dataset_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Type = DataConfig::Type;

class DatasetTest : public testing::Test {
 protected:
  DataConfig Data(Type type, const std::string& path) {
    DataConfig data;
    data.type = type;
    data.path = path;
    return data;
  }
  std::string WriteTokens(const std::string& name, const std::vector<uint16_t>& tokens) {
    return folder_.Write(
        name, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)});
  }
  std::string Count(const std::string& name, uint16_t tokens) {
    std::vector<uint16_t> values(tokens);
    std::iota(values.begin(), values.end(), uint16_t{0});
    return WriteTokens(name, values);
  }
  void Refused(const DataConfig& data, const DataNeeds& needs,
               const testing::Matcher<std::string>& message) {
    ExpectRefused([&] { OpenData(data, needs); }, ExitCode::kBadInput, message);
  }

  TempDir folder_;
  DataNeeds tokens_ = {.vocabulary = 50257, .positions = 4};
};

constexpr DataNeeds kTenClasses = {.classes = 10};

Batch Fetch(const Dataset& dataset, const std::vector<int64_t>& indices) {
  return dataset.Fetch(indices);
}

TEST_F(DatasetTest, DecodesImageFoldersOnRequest) {
  const auto add = [&](const std::string& file, const std::string& from) {
    const std::filesystem::path to = folder_ / file;
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy(std::filesystem::path(DSLAUNCH_TEST_IMAGE_FILES) / from, to);
  };
  for (const char* name : {"cat/1", "cat/2", "cat/3", "cat/4", "dog/1", "dog/2"})
    add(std::string("train/") + name + ".jpg", "subsampled.jpg");
  add("train/dog/3.png", "rgb.png");
  DataConfig data = Data(Type::kImageFolder, folder_.path());
  data.image_size = 12;
  EXPECT_EQ(OpenData(data, kTenClasses).test, nullptr);

  data.val_fraction = 0.4;  // takes one of the four cats and one of the three dogs
  const DataSplits divided = OpenData(data, kTenClasses);
  EXPECT_EQ(divided.train->size(), 5);
  ASSERT_EQ(divided.test->size(), 2);
  const Batch last = Fetch(*divided.test, {0, 1});
  EXPECT_EQ(last.targets[0].item<int64_t>(), 0);
  EXPECT_EQ(last.targets[1].item<int64_t>(), 1);
  std::ifstream expected(DSLAUNCH_TEST_IMAGES "/rgb.png.ppm", std::ios::binary);
  const std::string ppm{std::istreambuf_iterator<char>(expected), {}};
  const at::Tensor rows =
      at::tensor(std::vector<uint8_t>(ppm.end() - 12 * 12 * 3, ppm.end()), at::kByte)
          .view({12, 12, 3})
          .permute({2, 0, 1});
  EXPECT_TRUE(at::equal(last.inputs[1], rows.to(at::kFloat) / 255));

  data.val_fraction = 0;
  add("val/dog/1.png", "gray.png");
  folder_.Write("val/dog/2.png", "damaged");
  const DataSplits splits = OpenData(data, kTenClasses);
  EXPECT_EQ(splits.train->size(), 7);
  EXPECT_EQ(Fetch(*splits.test, {0}).targets.item<int64_t>(), 1) << "a dog there too";
  ExpectRefused([&] { Fetch(*splits.test, {1}); }, ExitCode::kBadInput,
                HasSubstr("val/dog/2.png: is neither a PNG nor a JPEG file"));
  add("train/bird/1.png", "rgb.png");
  const DataNeeds two = {.classes = 2};
  Refused(data, two, AllOf(HasSubstr("3 classes"), HasSubstr("--set model.num_classes=3")));
  data.val_fraction = 0.1;
  Refused(data, kTenClasses, HasSubstr("cannot be divided by data.val_fraction"));
}

TEST_F(DatasetTest, ImagesAreFloatsFrom0To1) {
  std::string record(1 + 3072, '\0');
  record[0] = 7;
  record[1] = '\xFF';         // red value of the first pixel
  record[1 + 1024 + 1] = 51;  // green value of the second pixel
  folder_.Write("data_batch_1.bin", std::string(3073, '\0') + record);
  folder_.Write("test_batch.bin", record);
  const DataSplits splits = OpenData(Data(Type::kCifar, folder_.path()), kTenClasses);
  EXPECT_EQ(splits.train->size(), 2);
  EXPECT_EQ(splits.test->size(), 1);
  EXPECT_THAT(splits.train->input_shape(), ElementsAre(3, 32, 32));
  EXPECT_EQ(splits.train->tokens_per_sample(), 0);
  const Batch batch = Fetch(*splits.train, {1, 0, 1});
  EXPECT_EQ(batch.inputs.dtype(), at::kFloat);
  EXPECT_THAT(batch.inputs.sizes().vec(), ElementsAre(3, 3, 32, 32));
  EXPECT_TRUE(batch.targets.equal(at::tensor({7, 0, 7}, at::kLong)));
  at::Tensor image = at::zeros({3, 32, 32});
  image[0][0][0] = 1;
  image[1][0][1] = 0.2f;
  EXPECT_TRUE(batch.inputs[0].equal(image));
  EXPECT_TRUE(batch.inputs[1].equal(at::zeros({3, 32, 32})));
  EXPECT_TRUE(batch.inputs[2].equal(image));
}

TEST_F(DatasetTest, ConvertsBytesAsLibTorchDoes) {
  std::string record(1 + 3072, '\0');
  for (size_t i = 1; i < record.size(); ++i) record[i] = static_cast<char>(i);
  folder_.Write("data_batch_1.bin", record);
  folder_.Write("test_batch.bin", record);
  const DataSplits splits = OpenData(Data(Type::kCifar, folder_.path()), kTenClasses);
  const at::Tensor bytes = at::arange(1, 3073, at::kLong).to(at::kByte).view({1, 3, 32, 32});
  EXPECT_TRUE(Fetch(*splits.train, {0}).inputs.equal(bytes.to(at::kFloat).div(255)));
}

TEST_F(DatasetTest, KeepsEndOfTableForEvaluation) {
  DataConfig data = Data(
      Type::kCsv, folder_.Write("train.csv", "x,y,label\n1,2,0\n3,4,1\n5,6,2\n7,8,3\n9,10,4\n"));
  DataSplits splits = OpenData(data, kTenClasses);
  EXPECT_EQ(splits.train->size(), 5);
  EXPECT_EQ(splits.test, nullptr);
  data.val_fraction = 0.5;
  splits = OpenData(data, kTenClasses);
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_EQ(splits.test->size(), 2);
  EXPECT_THAT(splits.test->input_shape(), ElementsAre(2));
  const Batch batch = Fetch(*splits.test, {1, 0});
  EXPECT_TRUE(batch.inputs.equal(at::tensor({9.f, 10.f, 7.f, 8.f}).view({2, 2})));
  EXPECT_TRUE(batch.targets.equal(at::tensor({4, 3}, at::kLong)));

  data.val_fraction = 0;
  data.label_column = "label";
  data.val_path = folder_.Write("val.csv", "label,x,y\n9,1,2\n");
  splits = OpenData(data, kTenClasses);
  EXPECT_EQ(splits.train->size(), 5);
  EXPECT_TRUE(Fetch(*splits.test, {0}).targets.equal(at::tensor({9}, at::kLong)));
  Refused(data, DataNeeds{.classes = 9}, HasSubstr("val.csv:2"));

  folder_.Write("val.csv", "label,x\n9,1\n");
  Refused(data, kTenClasses, HasSubstr("differ in size"));
  data.val_path.clear();
  data.val_fraction = 0.1;
  Refused(data, kTenClasses, AllOf(HasSubstr("train.csv"), HasSubstr("data.val_fraction")));
}

TEST_F(DatasetTest, CutsTokensIntoDisjointBlocks) {
  const DataConfig data = Data(Type::kTokens, Count("train.bin", 13));
  const DataSplits splits = OpenData(data, tokens_);
  EXPECT_EQ(splits.test, nullptr);
  EXPECT_EQ(splits.train->size(), 3) << "(13 - 1) / 4";
  EXPECT_EQ(splits.train->tokens_per_sample(), 4);
  EXPECT_THAT(splits.train->input_shape(), ElementsAre(4));
  const Batch batch = Fetch(*splits.train, {2, 0});
  EXPECT_TRUE(batch.inputs.equal(at::tensor({8, 9, 10, 11, 0, 1, 2, 3}, at::kLong).view({2, 4})));
  EXPECT_TRUE(batch.targets.equal(at::tensor({9, 10, 11, 12, 1, 2, 3, 4}, at::kLong).view({2, 4})));
  for (const int64_t index : {-1, 3}) {
    EXPECT_THROW(Fetch(*splits.train, {index}), std::out_of_range);
  }

  Count("train.bin", 12);
  EXPECT_EQ(OpenData(data, tokens_).train->size(), 2) << "the last block lacks its last target";
}

TEST_F(DatasetTest, FindsTokensForEvaluation) {
  DataConfig data = Data(Type::kTokens, folder_.path());
  Count("train.bin", 50);
  EXPECT_EQ(OpenData(data, tokens_).test, nullptr);
  WriteTokens("val.bin", {70, 71, 72, 73, 74});
  const auto first_test_token = [&] {
    return Fetch(*OpenData(data, tokens_).test, {0}).inputs[0][0].item<int64_t>();
  };
  EXPECT_EQ(first_test_token(), 70);
  data.val_path = WriteTokens("other.bin", {80, 81, 82, 83, 84});
  EXPECT_EQ(first_test_token(), 80);
  data.val_path.clear();
  data.val_fraction = 0.2;
  EXPECT_EQ(first_test_token(), 40);
  const DataSplits splits = OpenData(data, tokens_);
  EXPECT_EQ(splits.train->size(), 9) << "(40 - 1) / 4";
  EXPECT_EQ(splits.test->size(), 2) << "(10 - 1) / 4";

  data.val_fraction = 0.01;
  Refused(data, tokens_,
          AllOf(HasSubstr("train.bin: 0 tokens from token 50 on"),
                HasSubstr("data.block_size + 1, 5")));
  data.val_fraction = 0;
  WriteTokens("val.bin", {1, 2, 3, 4});
  Refused(data, tokens_, HasSubstr("val.bin: 4 tokens"));
  WriteTokens("train.bin", {});
  Refused(data, tokens_, HasSubstr("train.bin: 0 tokens"));
}

TEST_F(DatasetTest, MixesSourcesByWeight) {
  DataConfig data = Data(Type::kTokens, "");
  data.sources = {{Count("a.bin", 13), 3},
                  {WriteTokens("b.bin", {100, 101, 102, 103, 104, 105, 106, 107, 108}), 1}};
  data.val_path = Count("val.bin", 5);
  const DataSplits splits = OpenData(data, tokens_);
  EXPECT_EQ(splits.test->size(), 1);
  ASSERT_EQ(splits.train->size(), 3 + 2);
  const Batch batch = Fetch(*splits.train, {0, 1, 2, 3, 4});
  EXPECT_TRUE(batch.inputs.select(1, 0).equal(at::tensor({0, 4, 100, 8, 0}, at::kLong)))
      << "the fourth sample of a.bin is its first again";
  EXPECT_TRUE(batch.targets.select(1, 3).equal(at::tensor({4, 8, 104, 12, 4}, at::kLong)));
  EXPECT_THROW(Fetch(*splits.train, {5}), std::out_of_range);
}

TEST_F(DatasetTest, ReadsShardsOfFolderInOrderOfNames) {
  std::filesystem::create_directories(folder_.path() + "/web");
  std::filesystem::create_directories(folder_.path() + "/check");
  WriteTokens("web/b_02.bin", {3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  WriteTokens("web/b_01.bin", {});
  WriteTokens("web/a_10.bin", {0, 1, 2});
  folder_.Write("web/README", "not tokens");
  WriteTokens("check/b.bin", {203, 204});
  WriteTokens("check/a.bin", {200, 201, 202});
  DataConfig data = Data(Type::kTokens, folder_.path() + "/web");
  data.val_path = folder_.path() + "/check";
  const auto check = [&](int64_t samples) {
    const DataSplits splits = OpenData(data, tokens_);
    ASSERT_EQ(splits.train->size(), samples);
    EXPECT_TRUE(
        Fetch(*splits.train, {0}).targets.equal(at::tensor({1, 2, 3, 4}, at::kLong).view({1, 4})));
    ASSERT_EQ(splits.test->size(), 1);
    EXPECT_TRUE(Fetch(*splits.test, {0})
                    .targets.equal(at::tensor({201, 202, 203, 204}, at::kLong).view({1, 4})));
  };
  check(3);
  data.sources = {{data.path, 2}, {Count("other.bin", 13), 1}};
  data.path.clear();
  check(6);
}

TEST_F(DatasetTest, RejectsFolderWithoutCompleteShards) {
  std::filesystem::create_directories(folder_.path() + "/web");
  const DataConfig data = Data(Type::kTokens, folder_.path() + "/web");
  Refused(data, tokens_, HasSubstr("web: has no files of tokens, whose names end in .bin"));
  Count("web/text_train_1.bin", 13);
  folder_.Write("web/a.idx", "");
  Refused(data, tokens_, HasSubstr("a.idx: is the index of a.bin, which is missing"));
  std::filesystem::remove(data.path + "/a.idx");
  Count("web/text_val_0.bin", 13);
  Refused(data, tokens_,
          AllOf(HasSubstr("has text_train_1.bin and text_val_0.bin"), HasSubstr("data.val_path")));
}

TEST_F(DatasetTest, MarksFirstTokensOfDocuments) {
  DataConfig data = Data(Type::kTokens, WriteTokens("train.bin", {7, 5, 9, 5, 5, 8, 2, 5, 6}));
  data.documents = true;
  data.eos_token_id = 5;
  const DataSplits splits = OpenData(data, tokens_);
  const Batch batch = Fetch(*splits.train, {0, 1});
  EXPECT_TRUE(batch.inputs.equal(at::tensor({7, 5, ~9, 5, 5, ~8, 2, 5}, at::kLong).view({2, 4})));
  EXPECT_TRUE(
      batch.targets.equal(at::tensor({5, -100, 5, -100, -100, 2, 5, -100}, at::kLong).view({2, 4})))
      << "the first token of a block begins a document without a mark";
}

TEST_F(DatasetTest, TextNeedsVocabularyOf256) {
  const DataConfig data = Data(Type::kText, folder_.Write("a.txt", "hello"));
  EXPECT_TRUE(Fetch(*OpenData(data, tokens_).train, {0})
                  .targets.equal(at::tensor({'e', 'l', 'l', 'o'}, at::kLong).view({1, 4})));
  tokens_.vocabulary = 255;
  Refused(data, tokens_, AllOf(HasSubstr("model.vocab_size is 255"), HasSubstr("256")));
  Refused(Data(Type::kText, folder_.path()), DataNeeds{.vocabulary = 50257, .positions = 1024},
          HasSubstr("is not a file"));
}

TEST_F(DatasetTest, FetchFindsTokenAboveVocabulary) {
  tokens_.vocabulary = 300;
  const DataConfig data =
      Data(Type::kTokens, WriteTokens("train.bin", {1, 2, 3, 4, 5, 6, 7, 8, 300, 10, 11, 12, 13}));
  const DataSplits splits = OpenData(data, tokens_);
  Fetch(*splits.train, {0});
  ExpectRefused(
      [&] {
        Fetch(*splits.train, {0, 1});
      },
      ExitCode::kBadInput, AllOf(HasSubstr(data.path), HasSubstr("token 8 is 300")));
}

TEST_F(DatasetTest, AcceptsAnyDataWithoutNeeds) {
  DataConfig data = Data(Type::kTokens, WriteTokens("train.bin", {65535, 2, 3}));
  data.block_size = 2;
  EXPECT_TRUE(Fetch(*OpenData(data, DataNeeds{}).train, {0})
                  .inputs.equal(at::tensor({65535, 2}, at::kLong).view({1, 2})));
  data = Data(Type::kCsv, folder_.Write("a.csv", "1,2000000\n"));
  EXPECT_EQ(OpenData(data, DataNeeds{}).train->size(), 1);
}

int64_t ThreadsOfThisProcess() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST_F(DatasetTest, ReadsAheadWithOneThread) {
  std::string records;
  for (int i = 0; i < 64; ++i) records += std::string(3073, '\1');
  folder_.Write("data_batch_1.bin", records);
  folder_.Write("test_batch.bin", records);
  const DataSplits splits = OpenData(Data(Type::kCifar, folder_.path()), kTenClasses);

  const int threads_before = at::get_num_threads();
  // LibTorch starts up to 4 threads for each thread that calls a large operator.
  at::set_num_threads(4);
  const int64_t before = ThreadsOfThisProcess();
  BatchLoader loader(*splits.train, EvaluationIndices(64, 0, 1), 64, /*prefetch=*/1);
  const Batch batch = loader.Next();
  EXPECT_LE(ThreadsOfThisProcess(), before + 1);
  EXPECT_EQ(at::get_num_threads(), 4);
  at::set_num_threads(threads_before);
}

}  // namespace
}  // namespace dslaunch::dataset_test
