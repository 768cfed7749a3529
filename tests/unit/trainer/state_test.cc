#include "trainer/checkpoint/state.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

using testing::HasSubstr;

std::string LoadFailure(const Checkpoint& checkpoint, const std::vector<NamedTensor>& state) {
  try {
    LoadState(checkpoint, state);
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
}

TEST(StateTest, EveryDtypeComesBackBitForBit) {
  const TempDir folder;
  Checkpoint checkpoint{folder.path(), "t", {}};
  std::vector<NamedTensor> state;
  for (const auto type :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kByte, at::kBool}) {
    state.push_back({c10::toString(type), at::randint(0, 2, {3, 4}).to(type)});
  }
  state.push_back({"transposed", at::rand({2, 3}).t()});
  state.push_back({"scalar", at::full({}, 5.0)});
  state.push_back({"empty", at::zeros({0, 2})});
  WriteState(folder.path(), "s.safetensors", state, checkpoint.manifest);
  EXPECT_NO_THROW(VerifyCheckpoint(checkpoint));

  std::vector<NamedTensor> read;
  for (const NamedTensor& item : state) read.push_back({item.name, at::zeros_like(item.tensor)});
  EXPECT_EQ(LoadFailure(checkpoint, read), "");
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_TRUE(at::equal(read[i].tensor, state[i].tensor)) << state[i].name;
  }
}

// As ranks that each hold a part would write it.
TEST(StateTest, ATensorIsPutTogetherFromTheSlicesOfSeveralFiles) {
  const TempDir folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Checkpoint checkpoint{folder.path(), "t", {}};
  checkpoint.manifest.files = {
      {"0.safetensors",
       WriteSafetensors(folder / "0.safetensors", {{"w", "F32", {4}, values.data()}})},
      {"1.safetensors",
       WriteSafetensors(folder / "1.safetensors", {{"w", "F32", {2}, values.data() + 4}})}};
  checkpoint.manifest.tensors = {
      {"w", "F32", {2, 3}, {{0, 4, "0.safetensors"}, {4, 6, "1.safetensors"}}}};
  VerifyCheckpoint(checkpoint);
  const at::Tensor w = at::zeros({2, 3});
  EXPECT_EQ(LoadFailure(checkpoint, {{"w", w}}), "");
  EXPECT_TRUE(at::equal(w, at::arange(1, 7, at::kFloat).view({2, 3})));

  checkpoint.manifest.tensors[0].slices = {{0, 3, "0.safetensors"}, {3, 6, "1.safetensors"}};
  EXPECT_THROW(VerifyCheckpoint(checkpoint), TrainError) << "the files hold other slices";
}

TEST(StateTest, AnotherModelIsRefusedByTensor) {
  const TempDir folder;
  Checkpoint checkpoint{folder.path(), "t", {}};
  WriteState(folder.path(), "s.safetensors", {{"w", at::ones({2})}, {"b", at::ones({1})}},
             checkpoint.manifest);
  const at::Tensor w = at::zeros({2}), b = at::zeros({1});
  EXPECT_THAT(LoadFailure(checkpoint, {{"w", w}}), HasSubstr("this run has not: b"));
  EXPECT_THAT(LoadFailure(checkpoint, {{"w", w}, {"b", b}, {"c", b}}), HasSubstr("no tensor c"));
  EXPECT_THAT(LoadFailure(checkpoint, {{"w", at::zeros({3})}, {"b", b}}),
              HasSubstr("w is F32 [2], not F32 [3]"));
  EXPECT_THAT(LoadFailure(checkpoint, {{"w", w.to(at::kLong)}, {"b", b}}), HasSubstr("I64"));
}

TEST(StateTest, ARunGoesOnInAnotherPrecision) {
  const TempDir folder;
  Checkpoint checkpoint{folder.path(), "t", {}};
  const at::Tensor fine = at::full({3}, 1 + 1.0 / 512);  // more than bf16 can hold
  WriteState(folder.path(), "s.safetensors", {{"w", fine}, {"n", at::full({3}, 0.5, at::kHalf)}},
             checkpoint.manifest);
  const at::Tensor w = at::zeros({3}, at::kBFloat16), n = at::zeros({3});
  EXPECT_EQ(LoadFailure(checkpoint, {{"w", w}, {"n", n}}), "");
  EXPECT_TRUE(at::equal(w, fine.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(n, at::full({3}, 0.5)));
}

}  // namespace
}  // namespace dslaunch
