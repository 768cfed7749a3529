#include "trainer/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/unit/trainer/checkpoint/sample_manifest.h"
#include "trainer/base/train_error.h"

namespace dslaunch::manifest_test {
namespace {

using testing::HasSubstr;

std::string Refusal(const std::string& text) {
  try {
    ParseManifest(text, "/c/manifest.json");
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_THAT(error.what(), HasSubstr("/c/manifest.json"));
    return error.what();
  }
}

TEST(ManifestTest, RoundTripKeepsManifest) {
  const std::string text = FormatManifest(SampleManifest());
  const Manifest read = ParseManifest(text, "m");
  EXPECT_EQ(FormatManifest(read), text);
  EXPECT_EQ(read.position.step, 120);
  EXPECT_EQ(read.position.samples_in_epoch, 512);
  EXPECT_EQ(read.optimizer, "Lamb");
  EXPECT_EQ(read.saved_ms, 1'700'000'000'123);
  EXPECT_EQ(read.shuffle, false);
  EXPECT_EQ(read.micro_steps, 241);
  EXPECT_EQ(read.skipped_steps, 3);
  EXPECT_EQ(read.scheduled_updates, 116);
  EXPECT_EQ(read.zero_stage, 2);
  EXPECT_EQ(read.pipeline_stages, 3);
  EXPECT_EQ(read.loss, 0.75);
  EXPECT_EQ(read.dtype, "bf16");
  EXPECT_EQ(read.model, R"({"type":"mlp"})");
  EXPECT_EQ(read.client_state, SampleManifest().client_state);
  EXPECT_EQ(read.loss_scaler.scale, 32768);
  EXPECT_EQ(read.loss_scaler.iteration, 118);
  EXPECT_EQ(read.loss_scaler.last_overflow, 40);
  EXPECT_EQ(read.loss_scaler.hysteresis, 2);
  EXPECT_EQ(read.files[0].sum, (FileSum{100, 0xfedcba98}));
  EXPECT_EQ(read.tensors[0].slices[1].file, "b.safetensors");
}

// Contiguous slices are written in format 1, because older programs read only that format.
TEST(ManifestTest, WritesFormat1IfSlicesAreContiguous) {
  const std::string text = FormatManifest(SampleManifest());
  EXPECT_THAT(text, HasSubstr(R"( "format": "dslaunch checkpoint 1",)"));
  EXPECT_THAT(text, HasSubstr(R"(
   "slices": [
    {
     "start": 0,
     "end": 4,
     "file": "a.safetensors"
    },
    {
     "start": 4,
     "end": 6,
     "file": "b.safetensors"
    }
   ]
)"));
}

TEST(ManifestTest, WritesFormat2IfSlicesAreNotContiguous) {
  const Manifest sample = SampleManifestWithCuts();
  const std::string text = FormatManifest(sample);
  EXPECT_THAT(text, HasSubstr(R"( "format": "dslaunch checkpoint 2",)"));
  const Manifest read = ParseManifest(text, "m");
  EXPECT_EQ(FormatManifest(read), text);
  ASSERT_EQ(read.tensors[0].slices.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.tensors[0].slices[i].shard, sample.tensors[0].slices[i].shard);
  }
  EXPECT_EQ(read.tensors[1].slices[0].shard, Shard::Whole(1));
}

std::string WithChecksum(const std::string& rest) {
  char sum[16];
  std::snprintf(sum, sizeof sum, "%08x", Crc32(rest.data(), rest.size()));
  return std::string("{\"crc32\":\"") + sum + "\",\n" + rest;
}

// Returns the text of a manifest without its first line, with one word replaced.
std::string Replaced(const Manifest& manifest, const std::string& word, const std::string& by) {
  const std::string text = FormatManifest(manifest);
  std::string rest = text.substr(text.find('\n') + 1);
  return rest.replace(rest.find(word), word.size(), by);
}

TEST(ManifestTest, RefusesUnknownFormatByName) {
  EXPECT_EQ(Refusal(WithChecksum(Replaced(SampleManifest(), "checkpoint 1", "checkpoint 3"))),
            "/c/manifest.json: format is \"dslaunch checkpoint 3\"; this program reads "
            "\"dslaunch checkpoint 1\" and \"dslaunch checkpoint 2\"");
}

// Older programs ignore the rows, so they must refuse the slices too.
TEST(ManifestTest, RefusesNoncontiguousSlicesInFormat1) {
  EXPECT_THAT(
      Refusal(WithChecksum(Replaced(SampleManifestWithCuts(), "checkpoint 2", "checkpoint 1"))),
      HasSubstr("hole or an overlap"));
}

TEST(ManifestTest, ReadsManifestWithoutOptimizerAndScaler) {
  const std::string text = FormatManifest(SampleManifest());
  std::string rest = text.substr(text.find('\n') + 1);
  const size_t begin = rest.find(" \"optimizer\":"), end = rest.find(" \"seed\":");
  ASSERT_LT(begin, end);
  rest.erase(begin, end - begin);
  const Manifest read = ParseManifest(WithChecksum(rest), "m");
  EXPECT_EQ(read.optimizer, "");
  EXPECT_EQ(read.loss_scaler.iteration, 0);
  EXPECT_EQ(read.seed, 7);
}

TEST(ManifestTest, RefusesEveryFlippedBitAndTruncation) {
  const std::string good = FormatManifest(SampleManifest());
  for (size_t byte = 0; byte < good.size(); ++byte) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
    ASSERT_THAT(Refusal(bad), HasSubstr("checksum")) << "byte " << byte;
    ASSERT_THAT(Refusal(good.substr(0, byte)), HasSubstr("checksum")) << "cut at " << byte;
  }
}

// A checksum does not protect against a manifest that was written to mislead, so contradictions are
// refused too.
TEST(ManifestTest, RefusesContradictions) {
  const struct {
    void (*change)(Manifest&);
    std::string words;
  } cases[] = {
      {[](Manifest& m) { m.files[0].name = "../a"; }, "plain file name"},
      {[](Manifest& m) { m.files[0].name = "/etc/passwd"; }, "plain file name"},
      {[](Manifest& m) { m.files[0].name = ".."; }, "plain file name"},
      {[](Manifest& m) { m.files[1].name = "a.safetensors"; }, "given twice"},
      {[](Manifest& m) { m.tensors[1].name = "fc.weight"; }, "given twice"},
      {[](Manifest& m) { m.tensors[0].dtype = "F31"; }, "dtype"},
      {[](Manifest& m) { m.tensors[0].slices[1].file = "c"; }, "not among the files"},
      {[](Manifest& m) { m.tensors[0].slices[1].shard.start = 5; }, "hole or an overlap"},
      {[](Manifest& m) { m.tensors[0].slices[1].shard.start = 3; }, "hole or an overlap"},
      {[](Manifest& m) { m.tensors[0].slices[1].shard.stop = 5; }, "do not cover"},
      {[](Manifest& m) { m.tensors[0].slices[1].shard.stop = 7; }, "do not cover"},
      {[](Manifest& m) {
         m.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
       },
       "too large"},
      {[](Manifest& m) {
         m.tensors[0].shape = {-2, 3};
       },
       "shape"},
      {[](Manifest& m) { m.tensors[0].shape.assign(65, 1); }, "dimensions"},
      {[](Manifest& m) { m.position.step = -1; }, "step"},
      {[](Manifest& m) { m.serial = INT64_MAX; }, "serial"},
      {[](Manifest& m) { m.files[0].sum.bytes = m.files[1].sum.bytes = uint64_t{1} << 62; },
       "bytes is too large"},
      {[](Manifest& m) { m.files[0].name = std::string(300, 'a'); }, "plain file name"},
      {[](Manifest& m) { m.tensors[0].name = std::string(5000, 'a'); }, "longer than"},
      {[](Manifest& m) { m.dtype = "\x1b[31mbf16"; }, "dtype is not a plain word"},
      {[](Manifest& m) { m.optimizer = std::string(200, 'a'); }, "optimizer is not a plain word"},
      {[](Manifest& m) { m.run_id = std::string(2000, 'a'); }, "run_id"},
      // The tensor is larger than the files.
      {[](Manifest& m) { m.files[0].sum.bytes = 15; }, "beyond the end of the file"},
      {[](Manifest& m) {
         m.tensors[0].shape = {8};
         m.tensors[0].slices = {{Slice(Shard::Whole(8), 0, 4), "a.safetensors"},
                                {Slice(Shard::Whole(8), 4, 8), "a.safetensors"}};
       },
       "two slices"},
      {[](Manifest& m) { m.world_size = 0; }, "world_size"},
      {[](Manifest& m) { m.loss_scaler.scale = 0; }, "loss_scaler.scale"},
  };
  for (const auto& c : cases) {
    Manifest m = SampleManifest();
    c.change(m);
    EXPECT_THAT(Refusal(FormatManifest(m)), HasSubstr(c.words));
  }
}

TEST(ManifestTest, RefusesSlicesThatDoNotTileTheTensor) {
  constexpr char kHole[] = "hole or an overlap", kUncovered[] = "do not cover";
  const struct {
    void (*change)(std::vector<TensorSlice>&);
    std::string words;
  } cases[] = {
      {[](auto& slices) { slices[0].shard.offset = 1; }, kHole},
      {[](auto& slices) { slices[0].shard.row = 2; }, kHole},
      {[](auto& slices) { slices[0].shard.row = 0; }, "row is 0"},
      {[](auto& slices) { slices[0].shard.row = 4; }, "row is not smaller than pitch"},
      {[](auto& slices) { slices[0].shard.pitch = 4; }, kHole},
      {[](auto& slices) { slices[0].shard.pitch = INT64_MAX; }, kHole},
      {[](auto& slices) {
         slices[0].shard = {0, 1, 6, 0, 1};
       },
       kHole},
      {[](auto& slices) { slices[0].shard.stop = 1; }, kHole},
      {[](auto& slices) { slices[1].shard.offset = 2; }, kHole},
      {[](auto& slices) { slices[1].shard.offset = INT64_MAX; }, kHole},
      {[](auto& slices) { slices[1].shard.start = 1; }, kHole},
      {[](auto& slices) { slices[2].shard.stop = 3; }, kUncovered},
      {[](auto& slices) { slices[2].shard.stop = 5; }, kUncovered},
      {[](auto& slices) { slices[2].shard = Shard::Whole(6); }, kHole},
      {[](auto& slices) { std::swap(slices[0], slices[1]); }, kHole},
      {[](auto& slices) { slices.pop_back(); }, kUncovered},
      {[](auto& slices) { slices.erase(slices.begin()); }, kHole},
  };
  for (const auto& c : cases) {
    Manifest m = SampleManifestWithCuts();
    c.change(m.tensors[0].slices);
    EXPECT_THAT(Refusal(FormatManifest(m)), HasSubstr(c.words));
  }
}

}  // namespace
}  // namespace dslaunch::manifest_test
