#include "trainer/weights/pretrained.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "dslaunch/deferred_init.h"
#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/config/json/config_error.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/families/resnet18/resnet18_config.h"
#include "trainer/shards/shards.h"
#include "trainer/weights/config_json.h"

namespace dslaunch::pretrained_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

const ModelConfig kMlp = MlpConfig{4, 3};
const ModelConfig kGpt2 = Gpt2Config{
    .vocab_size = 11, .n_positions = 8, .n_embd = 12, .n_layer = 1, .n_head = 3, .n_inner = {}};

std::vector<NamedTensor> StateOf(const Model& model) {
  std::vector<NamedTensor> state;
  for (const auto& item : model.named_parameters()) {
    state.push_back({item.key(), item.value().detach()});
  }
  for (const auto& item : model.named_buffers()) state.push_back({item.key(), item.value()});
  return state;
}

void Save(const std::string& path, const std::vector<NamedTensor>& state) {
  std::filesystem::remove(path);
  std::vector<TensorBytes> tensors;
  for (const NamedTensor& item : state) {
    tensors.push_back({item.name, SafetensorsDtype(item.tensor.scalar_type()),
                       item.tensor.sizes().vec(), item.tensor.const_data_ptr()});
  }
  WriteSafetensors(path, tensors);
}

std::string Refusal(Model& model, const ModelConfig& config, const std::string& path) {
  try {
    InitWeights(model, config, path);
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
}

void ExpectSame(const Model& a, const Model& b) {
  const std::vector<NamedTensor> state_a = StateOf(a), state_b = StateOf(b);
  ASSERT_EQ(state_a.size(), state_b.size());
  for (size_t i = 0; i < state_a.size(); ++i) {
    EXPECT_TRUE(at::equal(state_a[i].tensor, state_b[i].tensor)) << state_a[i].name;
  }
}

TEST(PretrainedTest, LoadsExportThatReplacedAnother) {
  const TempDir outer;
  const std::string folder = outer / "a/b";
  const auto other = MakeModel(Resnet18Config{5}, {1, 8, 8});
  other->forward(at::rand({2, 1, 8, 8}));  // changes the buffers
  for (int time = 0; time < 2; ++time) {
    ExportHuggingFace(StateOf(*other), Resnet18Config{5}, folder);
    // A killed export leaves such a temporary file.
    std::filesystem::copy(folder + "/model.safetensors", folder + "/tmp-model.safetensors");
  }
  const auto model = MakeModel(Resnet18Config{5}, {1, 8, 8});
  InitWeights(*model, Resnet18Config{5}, folder);
  ExpectSame(*model, *other);
}

TEST(PretrainedTest, ExportLeavesOnlyItsTwoFiles) {
  const TempDir folder;
  ExportHuggingFace(StateOf(*MakeModel(kMlp, {2})), kMlp, folder.path());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, UnorderedElementsAre("config.json", "model.safetensors"));
  folder.Write("file", "");
  EXPECT_THROW(ExportHuggingFace({}, kMlp, folder / "file"), TrainError);
}

TEST(PretrainedTest, ConvertsFloatingPointFormats) {
  const TempDir folder;
  for (const auto type : {at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto source = MakeModel(kMlp, {2}), model = MakeModel(kMlp, {2});
    source->to(type);
    Save(folder / "w", StateOf(*source));
    InitWeights(*model, kMlp, folder / "w");
    source->to(at::kFloat);
    ExpectSame(*model, *source);
    EXPECT_EQ(model->parameters()[0].scalar_type(), at::kFloat);

    Save(folder / "w", StateOf(*source));
    model->to(type);
    InitWeights(*model, kMlp, folder / "w");
    source->to(type);
    ExpectSame(*model, *source);
  }
}

TEST(PretrainedTest, NamesTensorOfEachDifference) {
  const TempDir folder;
  const auto model = MakeModel(kMlp, {2});
  const auto refusal = [&](const std::function<void(std::vector<NamedTensor>&)>& change) {
    std::vector<NamedTensor> state = StateOf(*model);
    change(state);
    Save(folder / "w", state);
    return Refusal(*model, kMlp, folder / "w");
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([](auto& state) { state.pop_back(); }), HasSubstr("no tensor fc2.bias"));
  EXPECT_THAT(refusal([](auto& state) {
                state.push_back({"fc3.bias", at::zeros({1})});
              }),
              HasSubstr("tensor fc3.bias is not in the model"));
  EXPECT_THAT(refusal([](auto& state) {
                state[0].tensor = at::zeros({4, 3});
              }),
              HasSubstr("fc1.weight is F32 [4, 3] where the model has F32 [4, 2]"));
  EXPECT_THAT(refusal([](auto& state) {
                state[0].tensor = at::zeros({4, 2}, at::kLong);
              }),
              HasSubstr("fc1.weight is I64 [4, 2] where"));
  EXPECT_THAT(refusal([](auto& state) {
                state.push_back({"lm_head.weight", at::zeros({1})});
              }),
              HasSubstr("tensor lm_head.weight is not in the model"));
  EXPECT_THAT(Refusal(*model, kMlp, folder / "absent.safetensors"), HasSubstr("No such file"));
  folder.Write("weights.pt", "PK");
  EXPECT_THAT(Refusal(*model, kMlp, folder / "weights.pt"), HasSubstr("pickle"));
}

TEST(PretrainedTest, FillsNothingIfATensorDiffers) {
  const TempDir folder;
  const auto source = MakeModel(kMlp, {2}), model = MakeModel(kMlp, {2}),
             copy = MakeModel(kMlp, {2});
  std::vector<NamedTensor> state = StateOf(*source);
  Save(folder / "w", StateOf(*model));
  InitWeights(*copy, kMlp, folder / "w");
  state.back().tensor = at::zeros({7});
  Save(folder / "w", state);
  EXPECT_THAT(Refusal(*model, kMlp, folder / "w"), HasSubstr("fc2.bias"));
  ExpectSame(*model, *copy);
}

// Each tensor is cut at random columns, and each part at a random element. Some parts are empty.
TEST(PretrainedTest, FillsPartsOfModelWithoutMemory) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TempDir folder;
  const auto source = MakeModel(kGpt2, {8});
  Save(folder / "w", StateOf(*source));
  std::shared_ptr<Model> model;
  const InitRecording recording = DeferInit(1, [&] { model = MakeModel(kGpt2, {8}); });
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    std::vector<TensorPart> parts;
    std::vector<at::Tensor> expected;
    for (const NamedTensor& item : StateOf(*source)) {
      const auto at = [&](int64_t size) { return static_cast<int64_t>(random() % (size + 1)); };
      const std::vector<int64_t> shape = item.tensor.sizes().vec();
      const int64_t columns = shape.back(), column = at(columns);
      for (const auto& [begin, end] : {std::pair(int64_t{0}, column), std::pair(column, columns)}) {
        const Shard part = CutShard(shape, shape.size() - 1, begin, end);
        const at::Tensor values = item.tensor.slice(-1, begin, end).flatten();
        const int64_t cut = at(part.elements());
        for (const auto& [start, stop] :
             {std::pair(int64_t{0}, cut), std::pair(cut, part.elements())}) {
          if (random() % 4 == 0) continue;  // held by another rank
          parts.push_back({item.name, at::full({stop - start}, -1, type), shape,
                           Slice(part, start, stop), false});
          expected.push_back(values.slice(0, start, stop).to(type));
        }
      }
    }
    InitWeights(*model, kGpt2, parts, folder / "w");
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(at::equal(parts[i].tensor, expected[i])) << parts[i].name << parts[i].shard.start;
    }
  }
  std::vector<NamedTensor> state = StateOf(*source);
  state.back().tensor = at::zeros({7});
  Save(folder / "w", state);
  EXPECT_THROW(InitWeights(*model, kGpt2, {}, folder / "w"), TrainError)
      << "also on ranks that do not hold the tensor";
}

class Huge : public Model {
 public:
  Huge() { register_parameter("weight", at::empty({kElements})); }
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
  static constexpr int64_t kElements = int64_t{1} << 36;  // 256 GiB in fp32
};

TEST(PretrainedTest, ReadsOnlyTheBytesOfAPart) {
  const TempDir folder;
  const std::string header = R"({"weight":{"dtype":"F32","shape":[68719476736],)"
                             R"("data_offsets":[0,274877906944]}} )";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const std::string file = folder.Write("w", bytes + header);
  const size_t data = 8 + header.size();
  std::filesystem::resize_file(file, data + Huge::kElements * 4);  // makes a sparse file
  const float last = 2.5;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(data + Huge::kElements * 4 - sizeof last));
  stream.write(reinterpret_cast<const char*>(&last), sizeof last);
  stream.close();

  std::shared_ptr<Huge> model;
  const InitRecording recording = DeferInit(1, [&] { model = std::make_shared<Huge>(); });
  const TensorPart part = {
      "weight",
      at::full({3}, -1, at::kFloat),
      {Huge::kElements},
      Slice(Shard::Whole(Huge::kElements), Huge::kElements - 3, Huge::kElements),
      false};
  InitWeights(*model, kGpt2, {part}, file);
  EXPECT_TRUE(at::equal(part.tensor, at::tensor({0.0f, 0.0f, 2.5f})));
}

std::string Contents(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(PretrainedTest, ExportHoldsOneTensorAtATime) {
  const TempDir folder;
  const std::vector<NamedTensor> state = StateOf(*MakeModel(kGpt2, {8}));
  ExportHuggingFace(state, kGpt2, folder / "whole");
  std::vector<ExportedTensor> tensors;
  for (const NamedTensor& item : state) {
    tensors.push_back({item.name, item.tensor.scalar_type(), item.tensor.sizes().vec()});
  }
  c10::weak_intrusive_ptr<c10::TensorImpl> last{c10::intrusive_ptr<c10::TensorImpl>()};
  size_t calls = 0;
  ExportHuggingFace(
      tensors,
      [&](size_t index) {
        EXPECT_EQ(index, calls++);
        EXPECT_TRUE(last.expired());
        const at::Tensor values = state[index].tensor.clone();
        last = c10::weak_intrusive_ptr<c10::TensorImpl>(values.getIntrusivePtr());
        return values;
      },
      kGpt2, folder / "parts");
  EXPECT_EQ(calls, state.size());
  for (const std::string name : {"/model.safetensors", "/config.json"}) {
    EXPECT_EQ(Contents(folder / "parts" + name), Contents(folder / "whole" + name));
  }
}

TEST(PretrainedTest, ComparesConfigJsonWithDefaultsOfModel) {
  const TempDir folder;
  DecoderConfig decoder;
  decoder.vocab_size = 16;
  decoder.hidden_size = decoder.intermediate_size = 8;
  decoder.num_hidden_layers = 1;
  decoder.num_attention_heads = 2;
  decoder.max_position_embeddings = 4;
  folder.Write("config.json", ConfigJsonText(decoder, "float32"));  // includes the key head_dim
  CheckConfigJson(decoder, folder.path());
  decoder.num_attention_heads = 4;
  EXPECT_THAT([&] { CheckConfigJson(decoder, folder.path()); },
              ThrowsMessage<ConfigError>(HasSubstr("num_attention_heads")));
}

TEST(PretrainedTest, RefusesTensorInTwoFiles) {
  const TempDir folder;
  const auto model = MakeModel(kMlp, {2});
  const std::vector<NamedTensor> state = StateOf(*model);
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"fc1.weight": "1.safetensors", "fc2.bias": "2.safetensors"}})");
  Save(folder / "1.safetensors", state);
  Save(folder / "2.safetensors", {state.back()});
  EXPECT_THAT(Refusal(*model, kMlp, folder.path()),
              HasSubstr("2.safetensors: tensor fc2.bias is given twice"));
  Save(folder / "1.safetensors", {state.begin(), state.end() - 1});
  EXPECT_EQ(Refusal(*model, kMlp, folder.path()), "");
}

TEST(PretrainedTest, AcceptsGpt2NamesOfOldFiles) {
  const TempDir folder;
  const auto source = MakeModel(kGpt2, {8}), model = MakeModel(kGpt2, {8});
  std::vector<NamedTensor> state = StateOf(*source);
  for (NamedTensor& item : state) item.name = item.name.substr(std::string("transformer.").size());
  state.push_back({"h.0.attn.bias", at::ones({1, 1, 8, 8})});
  state.push_back({"h.0.attn.masked_bias", at::full({}, -1e4)});
  state.push_back({"lm_head.weight", state[0].tensor});
  ASSERT_EQ(state[0].name, "wte.weight");
  Save(folder / "w", state);
  EXPECT_EQ(Refusal(*model, kGpt2, folder / "w"), "");
  ExpectSame(*model, *source);

  state.back().tensor = state[0].tensor + 1;
  Save(folder / "w", state);
  EXPECT_THAT(Refusal(*model, kGpt2, folder / "w"), HasSubstr("lm_head.weight differs"));
  state.back().name = "transformer.wte.weight";
  Save(folder / "w", state);
  EXPECT_THAT(Refusal(*model, kGpt2, folder / "w"), HasSubstr("wte.weight is given twice"));
}

// The head is compared in chunks, and the difference is in the last chunk.
TEST(PretrainedTest, RefusesHeadThatDiffersAtItsEnd) {
  Gpt2Config config = kGpt2.As<Gpt2Config>();
  config.vocab_size = 100'003;
  const TempDir folder;
  const auto source = MakeModel(config, {8}), model = MakeModel(config, {8});
  std::vector<NamedTensor> state = StateOf(*source);
  ASSERT_EQ(state[0].name, "transformer.wte.weight");
  state.push_back({"lm_head.weight", state[0].tensor.clone()});
  Save(folder / "w", state);
  EXPECT_EQ(Refusal(*model, config, folder / "w"), "");
  ExpectSame(*model, *source);
  state.back().tensor.view(-1)[-1] += 1;
  Save(folder / "w", state);
  EXPECT_THAT(Refusal(*model, config, folder / "w"), HasSubstr("lm_head.weight differs"));
}

}  // namespace
}  // namespace dslaunch::pretrained_test
