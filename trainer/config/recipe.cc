#include "trainer/config/recipe.h"

#include "trainer/config/json_object.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr char kDefaultDataPath[] = "/usr/share/datasets/fashion-mnist";
constexpr int64_t kMaxUnits = int64_t{1} << 20;

ModelConfig ParseModel(JsonObject object) {
  const std::optional<std::string> type = object.Word("type", {"mlp", "cnn"});
  if (!type) object.Fail("type", "is missing; it is mlp or cnn");
  const auto hidden_size = object.Int("hidden_size", 1, kMaxUnits).value_or(128);
  const auto num_classes = object.Int("num_classes", 2, 256).value_or(10);
  object.RefuseUnknown();
  if (*type == "mlp") return MlpConfig{hidden_size, num_classes};
  return CnnConfig{hidden_size, num_classes};
}

DataConfig ParseData(JsonObject object) {
  DataConfig data;
  if (!object.Word("type", {"idx"})) object.Fail("type", "is missing; it is idx");
  data.path = object.String("path").value_or(kDefaultDataPath);
  data.shuffle = object.Bool("shuffle").value_or(data.shuffle);
  data.drop_last = object.Bool("drop_last").value_or(data.drop_last);
  object.RefuseUnknown();
  return data;
}

RunConfig ParseRun(JsonObject object) {
  RunConfig run;
  run.epochs = object.Int("epochs", 1, 1'000'000);
  run.steps = object.Int("steps", 1);
  run.seed = static_cast<uint64_t>(object.Int("seed", 0).value_or(0));
  run.eval_every = object.Int("eval_every", 1);
  run.metrics_jsonl = object.String("metrics_jsonl").value_or("");
  run.checkpoint_dir = object.String("checkpoint_dir").value_or("");
  run.save_every = object.Int("save_every", 1);
  const std::optional<std::string> resume = object.String("resume");
  const std::optional<int64_t> keep = object.Int("keep_checkpoints", 1);
  object.RefuseUnknown();
  for (const auto& [key, given] :
       {std::pair("save_every", run.save_every.has_value()),
        std::pair("resume", resume.has_value()), std::pair("keep_checkpoints", keep.has_value())}) {
    if (given && run.checkpoint_dir.empty()) {
      object.Fail(key, "needs run.checkpoint_dir (--checkpoint_dir)");
    }
  }
  run.resume = resume.value_or(run.resume);
  if (run.resume.empty() || run.resume.front() == '.' ||
      run.resume.find('/') != std::string::npos) {
    object.Fail("resume", "is \"" + run.resume +
                              "\"; it is auto, none or the name of a checkpoint (step_000120)");
  }
  run.keep_checkpoints = keep.value_or(run.keep_checkpoints);
  if (run.epochs.has_value() == run.steps.has_value()) {
    object.Fail("", "needs one of epochs and steps; it has " +
                        std::string(run.epochs ? "both" : "neither"));
  }
  return run;
}

}  // namespace

const char* ModelTypeName(const ModelConfig& model) {
  constexpr const char* kNames[] = {"mlp", "cnn", "resnet18", "gpt2", "plugin"};
  static_assert(std::size(kNames) == std::variant_size_v<ModelConfig>);
  return kNames[model.index()];
}

Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks) {
  const nlohmann::json json = ParseJson(json_text, source);
  JsonObject object(json, source, "");
  const auto section = [&](const char* name) {
    std::optional<JsonObject> found = object.Object(name);
    if (!found) object.Fail(name, "is missing; a recipe has model, data, run and engine");
    return *found;
  };
  Recipe recipe;
  recipe.model = ParseModel(section("model"));
  recipe.data = ParseData(section("data"));
  recipe.run = ParseRun(section("run"));
  recipe.engine = ParseEngineConfig(section("engine"), ranks, source);
  object.RefuseUnknown();
  return recipe;
}

}  // namespace dslaunch
