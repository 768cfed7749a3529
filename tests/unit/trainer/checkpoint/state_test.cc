#include "trainer/checkpoint/state.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/parallel/whole_tensor.h"
#include "trainer/shards/shards.h"

namespace dslaunch::state_test {
namespace {

using testing::HasSubstr;

constexpr auto Whole = TensorPart::Whole;

// Returns the part `shard` of `whole`, as one of several ranks holds it.
TensorPart Part(const std::string& name, const at::Tensor& whole, const Shard& shard) {
  return {.name = name,
          .tensor = PartOf(whole.flatten(), shard).clone(),
          .shape = whole.sizes().vec(),
          .shard = shard,
          .replicated = false};
}

TensorPart Zeroed(TensorPart part) {
  part.tensor = at::zeros_like(part.tensor);
  return part;
}

std::string LoadFailure(const Checkpoint& checkpoint, const std::vector<TensorPart>& state) {
  try {
    LoadState(checkpoint, state, World(), /*replica=*/0);
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
}

// Saves a checkpoint as ranks with these states would, and returns it.
Checkpoint Saved(const TempDir& folder, const std::vector<std::vector<TensorPart>>& states) {
  Checkpoint checkpoint{folder.path(), "t", {}};
  const int world_size = static_cast<int>(states.size());
  std::vector<RankRecord> records(states.size());
  for (int rank = 0; rank < world_size; ++rank) {
    const auto own = static_cast<size_t>(rank);
    WriteFile(folder.path(), OwnFile("model", states[own], rank, world_size), records[own]);
  }
  EnterRecords(records, checkpoint.manifest);
  checkpoint.manifest.world_size = world_size;
  checkpoint.manifest = ParseManifest(FormatManifest(checkpoint.manifest), "m");
  VerifyCheckpoint(checkpoint);
  return checkpoint;
}

TEST(StateTest, RoundTripsEveryDtypeBitForBit) {
  const TempDir folder;
  std::vector<TensorPart> state;
  for (const auto type :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kByte, at::kBool}) {
    state.push_back(Whole(c10::toString(type), at::randint(0, 2, {3, 4}).to(type)));
  }
  state.push_back(Whole("transposed", at::rand({2, 3}).t()));
  state.push_back(Whole("scalar", at::full({}, 5.0)));
  state.push_back(Whole("empty", at::zeros({0, 2})));
  const Checkpoint checkpoint = Saved(folder, {state});

  std::vector<TensorPart> read;
  for (const TensorPart& item : state) {
    read.push_back(Whole(item.name, at::zeros_like(item.tensor)));
  }
  EXPECT_EQ(LoadFailure(checkpoint, read), "");
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_TRUE(at::equal(read[i].tensor, state[i].tensor)) << state[i].name;
  }
}

TEST(StateTest, JoinsSlicesOfSeveralFiles) {
  const TempDir folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Checkpoint checkpoint{folder.path(), "t", {}};
  checkpoint.manifest.files = {
      {"0.safetensors",
       WriteSafetensors(folder / "0.safetensors", {{"w", "F32", {4}, values.data()}})},
      {"1.safetensors",
       WriteSafetensors(folder / "1.safetensors", {{"w", "F32", {2}, values.data() + 4}})}};
  const auto slices = [](int64_t cut) -> std::vector<TensorSlice> {
    const Shard whole = Shard::Whole(6);
    return {{Slice(whole, 0, cut), "0.safetensors"}, {Slice(whole, cut, 6), "1.safetensors"}};
  };
  checkpoint.manifest.tensors = {{"w", "F32", {2, 3}, slices(4)}};
  VerifyCheckpoint(checkpoint);
  const at::Tensor w = at::zeros({2, 3});
  EXPECT_EQ(LoadFailure(checkpoint, {Whole("w", w)}), "");
  EXPECT_TRUE(at::equal(w, at::arange(1, 7, at::kFloat).view({2, 3})));

  checkpoint.manifest.tensors[0].slices = slices(3);
  EXPECT_THROW(VerifyCheckpoint(checkpoint), TrainError) << "the files have other slices";
}

// Returns the bounds of `parts` ranges that divide [0, size). Some ranges may be empty.
std::vector<int64_t> RandomCuts(int64_t size, size_t parts, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, size};
  std::uniform_int_distribution<int64_t> place(0, size);
  while (cuts.size() < parts + 1) cuts.push_back(place(random));
  std::ranges::sort(cuts);
  return cuts;
}

// Cuts the tensor in a random dimension, and each part into flat slices, one for each of `ranks`
// ranks. Some slices may be empty.
std::vector<TensorPart> Cut(const TensorPart& whole, size_t ranks, std::mt19937& random) {
  const size_t columns = 1 + random() % ranks;
  std::vector<Shard> shards(columns, whole.shard);
  if (!whole.shape.empty()) {
    const size_t dim = random() % whole.shape.size();
    const std::vector<int64_t> cuts = RandomCuts(whole.shape[dim], columns, random);
    for (size_t i = 0; i < columns; ++i) {
      shards[i] = CutShard(whole.shape, dim, cuts[i], cuts[i + 1]);
    }
  } else {
    for (size_t i = 1; i < columns; ++i) shards[i] = Slice(whole.shard, 1, 1);
  }
  std::vector<TensorPart> parts;
  for (size_t i = 0; i < columns; ++i) {
    const size_t slices = i + 1 < columns ? 1 : ranks - parts.size();
    const std::vector<int64_t> cuts = RandomCuts(shards[i].elements(), slices, random);
    for (size_t k = 0; k < slices; ++k) {
      parts.push_back(Part(whole.name, whole.tensor, Slice(shards[i], cuts[k], cuts[k + 1])));
    }
  }
  return parts;
}

TEST(StateTest, ReadsAnyPartsFromAnyOtherParts) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const TempDir folder;
    const std::vector<TensorPart> tensors = {Whole("a", at::rand({7, 5})),
                                             Whole("b", at::rand({3}).to(at::kBFloat16)),
                                             Whole("c", at::rand({4, 3, 6})),
                                             Whole("wide", at::rand({3, 100'000})),
                                             Whole("large", at::rand({600'000})),
                                             Whole("replicated", at::rand({700'000})),
                                             Whole("count", at::full({}, round, at::kLong))};
    const size_t writers = 1 + random() % 4, readers = 1 + random() % 4;
    std::vector<std::vector<TensorPart>> states(writers);
    for (const TensorPart& tensor : tensors) {
      const std::vector<TensorPart> parts = Cut(tensor, writers, random);
      for (size_t rank = 0; rank < writers; ++rank) {
        states[rank].push_back(tensor.name == "replicated" ? tensor : parts[rank]);
      }
    }
    const Checkpoint checkpoint = Saved(folder, states);

    std::vector<TensorPart> read;
    for (const TensorPart& tensor : tensors) {
      for (const TensorPart& part : Cut(tensor, readers, random)) read.push_back(Zeroed(part));
    }
    ASSERT_EQ(LoadFailure(checkpoint, read), "");
    for (const TensorPart& part : read) {
      const auto whole = std::find_if(tensors.begin(), tensors.end(),
                                      [&](const auto& item) { return item.name == part.name; });
      EXPECT_TRUE(at::equal(part.tensor, PartOf(whole->tensor.flatten(), part.shard))) << part.name;
    }
  }
}

// Tensor-parallel ranks cut each of GPT-2's q, k and v, which are side by side in one tensor. ZeRO
// divides each part between two ranks.
TEST(StateTest, LoadsPartsOfFusedTensorWithAnyDivision) {
  const TempDir folder;
  const int64_t c = 8;
  const at::Tensor qkv = at::rand({c, 3 * c});
  const auto part = [&](int64_t rank, int64_t ranks) {
    return Part("qkv", qkv, CutShard({c, 3, c}, 2, rank * c / ranks, (rank + 1) * c / ranks));
  };
  std::vector<std::vector<TensorPart>> states;
  for (int64_t rank = 0; rank < 2; ++rank) {
    const Shard held = part(rank, 2).shard;
    states.push_back({Part("qkv", qkv, Slice(held, 0, 41))});
    states.push_back({Part("qkv", qkv, Slice(held, 41, held.elements()))});
  }
  const Checkpoint checkpoint = Saved(folder, states);
  EXPECT_THAT(FormatManifest(checkpoint.manifest), HasSubstr("\"dslaunch checkpoint 2\""));

  std::vector<TensorPart> read = {Zeroed(Whole("qkv", qkv)), Zeroed(part(1, 2))};
  for (int64_t rank = 0; rank < 4; ++rank) read.push_back(Zeroed(part(rank, 4)));
  read.push_back(Zeroed(Part("qkv", qkv, CutShard({c, 3 * c}, 1, 3, 20))));
  read.push_back(Zeroed(Part("qkv", qkv, CutShard({c, 3 * c}, 0, 2, 5))));
  ASSERT_EQ(LoadFailure(checkpoint, read), "");
  for (const TensorPart& item : read) {
    EXPECT_TRUE(at::equal(item.tensor.flatten(), PartOf(qkv.flatten(), item.shard)));
  }
  StoredTensors stored(checkpoint);
  EXPECT_TRUE(at::equal(stored.ReadWhole(checkpoint.manifest.tensors[0]), qkv));
}

// A vocabulary of 5 on 4 ranks has 2 rows on each rank; one row of rank 2 and both rows of rank 3
// are padding.
TEST(StateTest, DoesNotSavePadding) {
  const TempDir folder;
  const at::Tensor rows = at::rand({5, 3});
  std::vector<std::vector<TensorPart>> states;
  for (int64_t rank = 0; rank < 4; ++rank) {
    states.push_back({Part("rows", rows, CutShard({5, 3}, 0, 2 * rank, 2 * rank + 2))});
  }
  EXPECT_EQ(states[2][0].tensor.numel(), 3);
  EXPECT_EQ(states[3][0].tensor.numel(), 0);
  const Checkpoint checkpoint = Saved(folder, states);
  EXPECT_EQ(checkpoint.manifest.files.size(), 3u);
  EXPECT_THAT(FormatManifest(checkpoint.manifest), HasSubstr("\"dslaunch checkpoint 1\""))
      << "rows are contiguous";
  std::vector<TensorPart> read = {Zeroed(Whole("rows", rows))};
  for (const auto& state : states) read.push_back(Zeroed(state[0]));
  ASSERT_EQ(LoadFailure(checkpoint, read), "");
  EXPECT_TRUE(at::equal(read[0].tensor, rows));
  EXPECT_TRUE(at::equal(read[3].tensor, rows[4]));
}

// Replicas of one tensor-parallel rank hold the same part, so each saves a share of it.
TEST(StateTest, ReplicasDivideSavingOfTheirPart) {
  const at::Tensor whole = at::rand({1000, 2000});
  TensorPart part = Part("w", whole, CutShard({1000, 2000}, 1, 1000, 2000));
  part.replicated = true;
  for (int rank = 0; rank < 2; ++rank) {
    const StateFile file = OwnFile("m", {part}, rank, 2);
    ASSERT_EQ(file.parts.size(), 1u);
    const TensorPart& share = file.parts[0];
    EXPECT_EQ(share.shard, Slice(part.shard, rank * 500'000, (rank + 1) * 500'000));
    EXPECT_TRUE(at::equal(share.tensor, PartOf(whole.flatten(), share.shard)));
  }
}

TEST(StateTest, RanksDivideReplicatedTensorsAndRank0SavesBuffers) {
  std::vector<TensorPart> state = {Whole("w", at::rand({1'000'000})), Whole("mean", at::rand({9}))};
  state[1].rank0_authoritative = true;
  const StateFile file = OwnFile("m", state, 0, 2);
  EXPECT_EQ(file.name, "m-00001-of-00002.safetensors");
  const std::vector<TensorPart> first = file.parts, second = OwnFile("m", state, 1, 2).parts;
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_TRUE(at::equal(at::cat({first[0].tensor, second[0].tensor}), state[0].tensor));
  EXPECT_EQ(second[0].shard, Slice(state[0].shard, 500'000, 1'000'000));
  EXPECT_TRUE(first[0].tensor.is_alias_of(state[0].tensor)) << "saving needs no second copy";
  const std::vector<TensorPart> kept = Snapshot(first);
  const at::Tensor before = first[0].tensor.clone();
  state[0].tensor.zero_();
  EXPECT_TRUE(at::equal(kept[0].tensor, before));
  const StateFile small = OwnFile("m", {Whole("w", at::ones({9}))}, 0, 2);
  EXPECT_EQ(small.name, "m.safetensors");
  EXPECT_TRUE(OwnFile("m", {Whole("w", at::ones({9}))}, 1, 2).parts.empty());
}

// Two pipeline stages share a weight, which only one of them saves.
TEST(StateTest, LoadsButDoesNotSaveTensorOfAnotherStage) {
  const TempDir folder;
  const TensorPart a = Whole("a", at::ones({2})), shared = Whole("shared", at::ones({3})),
                   b = Whole("b", at::ones({4}));
  TensorPart copy = shared, half = Part("shared", shared.tensor, Slice(shared.shard, 0, 2));
  copy.is_canonical = half.is_canonical = false;
  EXPECT_TRUE(OwnFile("model", {copy, half}, 0, 2).parts.empty());
  Checkpoint checkpoint{folder.path(), "t", {}};
  std::vector<RankRecord> records(2);
  WriteFile(folder.path(), OwnFile("model-stage-0", {a, shared}, 0, 1), records[0]);
  WriteFile(folder.path(), OwnFile("model-stage-1", {copy, b}, 0, 1), records[1]);
  EnterRecords(records, checkpoint.manifest);
  VerifyCheckpoint(checkpoint);
  copy.tensor = at::zeros({3});
  const std::vector<TensorPart> read = {Whole("a", at::zeros({2})), Whole("shared", at::zeros({3})),
                                        Whole("b", at::zeros({4})), copy};
  EXPECT_EQ(LoadFailure(checkpoint, read), "");
  for (const TensorPart& part : read) EXPECT_TRUE((part.tensor == 1).all().item<bool>());
  EXPECT_THAT(LoadFailure(checkpoint, {read[0], read[2], copy}),
              HasSubstr("holds a tensor that this run does not have: shared"))
      << "a copy does not stand for the tensor";
}

TEST(StateTest, NamesTensorThatDiffersFromModel) {
  const TempDir folder;
  const Checkpoint checkpoint =
      Saved(folder, {{Whole("w", at::ones({2})), Whole("b", at::ones({1}))}});
  const TensorPart w = Whole("w", at::zeros({2})), b = Whole("b", at::zeros({1}));
  EXPECT_THAT(LoadFailure(checkpoint, {w}), HasSubstr("this run does not have: b"));
  EXPECT_THAT(LoadFailure(checkpoint, {w, b, Whole("c", b.tensor)}), HasSubstr("no tensor c"));
  EXPECT_THAT(LoadFailure(checkpoint, {Whole("w", at::zeros({3})), b}),
              HasSubstr("w is F32 [2], not F32 [3]"));
  EXPECT_THAT(LoadFailure(checkpoint, {Whole("w", w.tensor.to(at::kLong)), b}), HasSubstr("I64"));
}

TEST(StateTest, LoadsIntoAnotherPrecision) {
  const TempDir folder;
  const at::Tensor fine = at::full({3}, 1 + 1.0 / 512);  // needs more precision than bf16 has
  const Checkpoint checkpoint =
      Saved(folder, {{Whole("w", fine), Whole("n", at::full({3}, 0.5, at::kHalf))}});
  const at::Tensor w = at::zeros({3}, at::kBFloat16), n = at::zeros({3});
  EXPECT_EQ(LoadFailure(checkpoint, {Whole("w", w), Whole("n", n)}), "");
  EXPECT_TRUE(at::equal(w, fine.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(n, at::full({3}, 0.5)));
}

}  // namespace
}  // namespace dslaunch::state_test
