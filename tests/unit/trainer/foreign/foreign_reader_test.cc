#include "trainer/foreign/foreign_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <random>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/state.h"
#include "trainer/parallel/whole_tensor.h"
#include "trainer/shards/shards.h"

namespace dslaunch::foreign_reader_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Writes `before` other bytes, followed by the memory of a contiguous tensor.
void WriteRaw(const std::string& path, size_t before, const at::Tensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  file << std::string(before, 'x');
  file.write(static_cast<const char*>(tensor.const_data_ptr()),
             static_cast<std::streamsize>(tensor.nbytes()));
}

std::string Failure(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
}

// Returns a checkpoint of one tensor whose elements are in 40 files.
ForeignCheckpoint CutIntoFiles(const TempDir& folder, const at::Tensor& whole) {
  constexpr int64_t kFiles = 40;
  ForeignCheckpoint plan;
  TensorRecord record{.name = "w", .dtype = "F32", .shape = whole.sizes().vec(), .slices = {}};
  for (int64_t i = 0; i < kFiles; ++i) {
    const Shard shard = Slice(Shard::Whole(whole.numel()), i * whole.numel() / kFiles,
                              (i + 1) * whole.numel() / kFiles);
    const std::string name = "rank" + std::to_string(i);
    WriteRaw(folder / name, static_cast<size_t>(i),
             whole.flatten().slice(0, shard.start, shard.stop).contiguous());
    record.slices.push_back({shard, name});
    plan.places[name] = {.path = folder / name, .begin = static_cast<uint64_t>(i), .stride = {}};
  }
  plan.checkpoint.manifest.tensors = {record};
  plan.checkpoint.folder = folder.path();
  return plan;
}

TEST(ForeignReaderTest, ReadsAnyPartFromManyFiles) {
  const TempDir folder;
  const at::Tensor whole = at::rand({50, 21});
  const Checkpoint checkpoint = WithReader(CutIntoFiles(folder, whole));
  const TensorRecord& record = checkpoint.manifest.tensors[0];
  StoredTensors stored(checkpoint);
  EXPECT_TRUE(at::equal(stored.ReadWhole(record), whole));
  at::Tensor block = at::empty({200});
  stored.Read(record, Slice(Shard::Whole(whole.numel()), 333, 533), block.mutable_data_ptr());
  EXPECT_TRUE(at::equal(block, whole.flatten().slice(0, 333, 533)));
  const Shard columns = CutShard({50, 21}, 1, 7, 14);
  const TensorPart part = {.name = "w",
                           .tensor = at::empty({columns.elements()}, at::kBFloat16),
                           .shape = {50, 21},
                           .shard = columns,
                           .replicated = false};
  stored.Fill(part);
  EXPECT_TRUE(at::equal(part.tensor, PartOf(whole.flatten(), columns).to(at::kBFloat16)));
}

TEST(ForeignReaderTest, LoadStateUsesTheReader) {
  const TempDir folder;
  const at::Tensor whole = at::rand({50, 21});
  const Checkpoint checkpoint = WithReader(CutIntoFiles(folder, whole));
  const std::vector<TensorPart> state = {TensorPart::Whole("w", at::zeros({50, 21}))};
  LoadState(checkpoint, state, World(), /*replica=*/0);
  EXPECT_TRUE(at::equal(state[0].tensor, whole));
}

// Tests tensors of up to four dimensions, whose elements are in any order and with gaps in the
// file.
TEST(ForeignReaderTest, GathersElementsWithStrides) {
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  const TempDir folder;
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> shape, order;
    for (int64_t i = 0, dims = up_to(4); i < dims; ++i) {
      shape.push_back(1 + up_to(6));
      order.insert(order.begin() + up_to(i), i);
    }
    std::vector<int64_t> stride(shape.size());
    int64_t next = 1 + up_to(2);
    for (const int64_t dim : order) {
      stride[dim] = up_to(9) == 0 ? 0 : next;  // 0 as in an expanded tensor
      next *= shape[dim] + up_to(1);
    }
    const at::Tensor memory = at::rand({next * 7 + 1});
    const at::Tensor expected = memory.as_strided(shape, stride).contiguous();
    WriteRaw(folder / "file", 3, memory);
    ForeignCheckpoint plan;
    plan.places["s"] = {.path = folder / "file", .begin = 3, .stride = stride};
    plan.checkpoint.manifest.tensors = {
        {"w", "F32", shape, {{Shard::Whole(expected.numel()), "s"}}}};
    const Checkpoint checkpoint = WithReader(plan);
    StoredTensors stored(checkpoint);
    const TensorRecord& record = checkpoint.manifest.tensors[0];
    ASSERT_TRUE(at::equal(stored.ReadWhole(record), expected)) << expected.sizes();
    const int64_t from = up_to(expected.numel()), to = from + up_to(expected.numel() - from);
    at::Tensor block = at::empty({to - from});
    stored.Read(record, Slice(Shard::Whole(expected.numel()), from, to), block.mutable_data_ptr());
    ASSERT_TRUE(at::equal(block, expected.flatten().slice(0, from, to)));
  }
}

TEST(ForeignReaderTest, RefusesShortenedAndMissingFile) {
  const TempDir folder;
  const ForeignCheckpoint plan = CutIntoFiles(folder, at::rand({50, 21}));
  const auto read = [&] {
    const Checkpoint checkpoint = WithReader(plan);
    StoredTensors(checkpoint).ReadWhole(checkpoint.manifest.tensors[0]);
  };
  std::filesystem::resize_file(folder / "rank7", 100);
  EXPECT_THAT(Failure(read), AllOf(HasSubstr("rank7: has 100 bytes where w needs 115"),
                                   HasSubstr("it is cut off or has been changed")));
  std::filesystem::remove(folder / "rank6");
  EXPECT_THAT(Failure(read), HasSubstr("rank6: cannot be read: No such file"));
}

TEST(ForeignReaderTest, KeepsFewFilesOpen) {
  const TempDir folder;
  const Checkpoint checkpoint = WithReader(CutIntoFiles(folder, at::rand({50, 21})));
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  StoredTensors stored(checkpoint);
  stored.ReadWhole(checkpoint.manifest.tensors[0]);
  EXPECT_LE(open_files() - before, static_cast<std::ptrdiff_t>(ForeignReader::kMaxOpenFiles));
}

}  // namespace
}  // namespace dslaunch::foreign_reader_test
