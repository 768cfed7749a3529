#include "trainer/config/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/families/cnn/cnn_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/families/plugin/plugin_config.h"
#include "trainer/families/resnet18/resnet18_config.h"

namespace dslaunch::recipe_test {
namespace {

using nlohmann::json;

json Minimal() {
  return {{"model", {{"type", "mlp"}}},
          {"data", {{"type", "idx"}}},
          {"run", {{"steps", 10}}},
          {"engine", {{"train_batch_size", 64}, {"optimizer", {{"type", "Adam"}}}}}};
}

Recipe Parse(const json& recipe, int64_t ranks = 4) {
  return ParseRecipe(recipe.dump(), "r.json", ranks);
}

std::string Refusal(const json& recipe, int64_t ranks = 4) {
  try {
    Parse(recipe, ranks);
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
  return "accepted";
}

// Returns the minimal recipe after replacing the value at a JSON pointer.
json With(const std::string& pointer, const json& value) {
  json recipe = Minimal();
  recipe[json::json_pointer(pointer)] = value;
  return recipe;
}

TEST(RecipeTest, HasDeepSpeedsDefaults) {
  const Recipe recipe = Parse(Minimal());
  EXPECT_EQ(recipe.model.As<MlpConfig>().hidden_size, 128);
  EXPECT_EQ(recipe.data.path, "/usr/share/datasets/fashion-mnist");
  EXPECT_TRUE(recipe.data.shuffle);
  EXPECT_EQ(recipe.engine.batch.micro_batch_size, 16);
  EXPECT_EQ(recipe.engine.gradient_clipping, 1.0);
  const OptimizerConfig& optimizer = *recipe.engine.optimizer;
  EXPECT_EQ(optimizer.type, OptimizerConfig::Type::kAdamW)
      << "Adam means AdamW unless adam_w_mode is false";
  EXPECT_EQ(optimizer.lr, 1e-3);
  EXPECT_EQ(optimizer.beta2, 0.999);
  EXPECT_EQ(optimizer.weight_decay, 0);
}

TEST(RecipeTest, ReadsOptimizerAndScheduler) {
  json recipe = With("/engine/optimizer/params", {{"lr", 0.5}});
  recipe["engine"]["scheduler"] = {{"type", "StepLR"}, {"params", {{"step_size", 7}}}};
  const EngineConfig engine = Parse(recipe).engine;
  EXPECT_EQ(engine.optimizer->lr, 0.5);
  EXPECT_EQ(engine.scheduler.name, "StepLR");
  EXPECT_EQ(std::get<StepLr>(engine.scheduler.schedule).step_size, 7);
  EXPECT_EQ(Parse(Minimal()).engine.scheduler.name, "");

  EXPECT_THAT(Refusal(With("/engine/optimizer/params", {{"momentum", 0.9}})),
              testing::StartsWith("r.json: engine.optimizer.params.momentum is not a known key"));
  EXPECT_THAT(Refusal(With("/engine/scheduler", {{"type", "WarmupLr"}})),
              testing::StartsWith("r.json: engine.scheduler.type is \"WarmupLr\"; did you mean "
                                  "\"WarmupLR\"?"));
  EXPECT_EQ(Refusal(With("/engine/scheduler", {{"type", "StepLR"}})),
            "r.json: engine.scheduler.params.step_size is missing; this schedule needs it");
}

TEST(RecipeTest, RefusesUnknownKeysAtEveryDepth) {
  EXPECT_EQ(Refusal(With("/modle", 1)),
            "r.json: modle is not a known key; did you mean \"model\"?");
  EXPECT_EQ(Refusal(With("/model/hiden_size", 64)),
            "r.json: model.hiden_size is not a known key; did you mean \"hidden_size\"?");
  EXPECT_EQ(Refusal(With("/data/shufle", true)),
            "r.json: data.shufle is not a known key; did you mean \"shuffle\"?");
  EXPECT_EQ(Refusal(With("/run/epoch", 3)),
            "r.json: run.epoch is not a known key; did you mean \"epochs\"?");
  EXPECT_EQ(Refusal(With("/engine/train_micro_batch_size", 3)),
            "r.json: engine.train_micro_batch_size is not a known key; did you mean "
            "\"train_micro_batch_size_per_gpu\"?");
}

TEST(RecipeTest, ReportsMissingParts) {
  json no_data = Minimal();
  no_data.erase("data");
  EXPECT_THAT(Refusal(no_data), testing::HasSubstr("data is missing"));
  EXPECT_THAT(Refusal(With("/run", json::object())),
              testing::HasSubstr("run needs one of epochs and steps; it has neither"));
  EXPECT_THAT(Refusal(With("/run/epochs", 2)), testing::HasSubstr("it has both"));
  EXPECT_THAT(Refusal(json::array()), testing::HasSubstr("not an object"));
}

TEST(RecipeTest, AcceptsDeepSpeedKeysWithoutEffect) {
  EXPECT_EQ(Refusal(With("/engine/fp16", {{"enabled", false}})), "accepted");
  EXPECT_EQ(Refusal(With("/engine/zero_optimization", {{"stage", 2}})), "accepted");
}

TEST(RecipeTest, TrainsWithAdamWWithoutOptimizer) {
  json recipe = Minimal();
  recipe["engine"].erase("optimizer");
  const OptimizerConfig optimizer = *Parse(recipe).engine.optimizer;
  EXPECT_EQ(optimizer.name, "AdamW");
  EXPECT_EQ(optimizer.lr, 1e-3);
}

TEST(RecipeTest, NamesEngineFileInMessages) {
  json recipe = With("/engine_source", "/home/me/ds.json");
  EXPECT_EQ(Parse(recipe).engine.batch.train_batch_size, 64);
  recipe["engine"]["fp61"] = 1;
  EXPECT_EQ(Refusal(recipe), "/home/me/ds.json: fp61 is not a known key; did you mean \"fp16\"?");
  EXPECT_THAT(Refusal(With("/engine", "ds.json")),
              testing::StartsWith("r.json: engine is the path of a file"));
}

TEST(RecipeTest, ReadsModelsOfEachType) {
  EXPECT_EQ(Parse(With("/model", {{"type", "cnn"}, {"hidden_size", 7}}))
                .model.As<CnnConfig>()
                .hidden_size,
            7);
  EXPECT_EQ(Parse(With("/model", {{"type", "resnet18"}, {"num_classes", 100}}))
                .model.As<Resnet18Config>()
                .num_classes,
            100);
  const PluginConfig plugin =
      Parse(With("/model", {{"type", "plugin"}, {"path", "/p.so"}, {"params", {{"w", 3}}}}))
          .model.As<PluginConfig>();
  EXPECT_EQ(plugin.path, "/p.so");
  EXPECT_EQ(plugin.params, "{\"w\":3}");
  EXPECT_EQ(
      Parse(With("/model", {{"type", "plugin"}, {"path", "p"}})).model.As<PluginConfig>().params,
      "{}");
}

json WithPluginData(const json& data = {}, const json& run = {}) {
  json recipe = Minimal();
  recipe["data"] = {{"type", "plugin"}, {"plugin", "/d.so"}, {"name", "shapes"}};
  recipe["data"].update(data.is_object() ? data : json::object());
  recipe["run"].update(run.is_object() ? run : json::object());
  return recipe;
}

TEST(RecipeTest, ReadsDataAndMetricsOfPlugin) {
  Recipe recipe = Parse(
      WithPluginData({{"params", {{"n", 3}}}},
                     {{"metrics", {"top_3", "f1"}}, {"metrics_params", {{"f1", {{"beta", 2}}}}}}));
  EXPECT_EQ(recipe.data.type, DataConfig::Type::kPlugin);
  EXPECT_EQ(recipe.data.params, "{\"n\":3}");
  EXPECT_EQ(DataName(recipe.data), "shapes of /d.so");
  ASSERT_EQ(recipe.run.metrics.size(), 2u);
  EXPECT_EQ(recipe.run.metrics[0].plugin, "/d.so") << "the data's";
  EXPECT_EQ(recipe.run.metrics[0].params, "{}");
  EXPECT_EQ(recipe.run.metrics[1].params, "{\"beta\":2}");

  json of_model = With("/model", {{"type", "plugin"}, {"path", "/m.so"}});
  of_model["data"] = {{"type", "plugin"}, {"name", "shapes"}, {"path", "/data"}};
  of_model["run"]["metrics"] = {"top_3"};
  recipe = Parse(of_model);
  EXPECT_EQ(recipe.data.plugin, "/m.so");
  EXPECT_EQ(recipe.run.metrics[0].plugin, "/m.so");
  EXPECT_EQ(DataName(recipe.data), "shapes of /m.so (/data)");
  of_model["run"]["metrics_plugin"] = "/own.so";
  EXPECT_EQ(Parse(of_model).run.metrics[0].plugin, "/own.so");
}

json Gpt2(const json& model = {}, const json& data = {}, const json& run = {}) {
  json recipe = Minimal();
  recipe["model"] = {{"type", "gpt2"}};
  recipe["data"] = {{"type", "text"}, {"path", "/t.txt"}};
  for (const auto& [name, keys] : {std::pair("model", model), {"data", data}, {"run", run}}) {
    if (keys.is_object()) recipe[name].update(keys);
  }
  return recipe;
}

TEST(RecipeTest, Gpt2HasHuggingFacesKeysAndDefaults) {
  const Gpt2Config defaults = Parse(Gpt2()).model.As<Gpt2Config>();
  EXPECT_EQ(defaults.vocab_size, 50257);
  EXPECT_EQ(defaults.n_positions, 1024);
  EXPECT_EQ(defaults.n_embd, 768);
  EXPECT_FALSE(defaults.n_inner);
  EXPECT_EQ(defaults.attn_pdrop, 0.1);
  const Recipe tiny = Parse(Gpt2({{"vocab_size", 256},
                                  {"n_positions", 64},
                                  {"n_embd", 48},
                                  {"n_layer", 2},
                                  {"n_head", 3},
                                  {"n_inner", 100},
                                  {"resid_pdrop", 0},
                                  {"embd_pdrop", 0},
                                  {"attn_pdrop", 0},
                                  {"layer_norm_epsilon", 1e-6},
                                  {"initializer_range", 0.1}},
                                 {{"block_size", 64}, {"val_fraction", 0.1}, {"prefetch", 0}},
                                 {{"loss_normalization", "tokens"},
                                  {"prompt", "To be"},
                                  {"max_new_tokens", 5},
                                  {"temperature", 0},
                                  {"top_k", 3},
                                  {"export_hf", "/out"}}));
  const Gpt2Config& gpt2 = tiny.model.As<Gpt2Config>();
  EXPECT_EQ(gpt2.n_head, 3);
  EXPECT_EQ(gpt2.n_inner, 100);
  EXPECT_EQ(gpt2.initializer_range, 0.1);
  EXPECT_EQ(tiny.data.type, DataConfig::Type::kText);
  EXPECT_EQ(tiny.data.block_size, 64);
  EXPECT_EQ(tiny.data.val_fraction, 0.1);
  EXPECT_EQ(tiny.data.prefetch, 0);
  EXPECT_TRUE(tiny.run.normalize_by_targets);
  EXPECT_EQ(tiny.run.prompt, "To be");
  EXPECT_EQ(tiny.run.max_new_tokens, 5);
  EXPECT_EQ(tiny.run.temperature, 0);
  EXPECT_EQ(tiny.run.top_k, 3);
  EXPECT_EQ(tiny.run.export_hf, "/out");
}

TEST(RecipeTest, ReadsKeysOfSectionRun) {
  json recipe = Minimal();
  recipe["run"].update({{"mode", "predict"},
                        {"predictions", "/p.jsonl"},
                        {"init_weights", "/w"},
                        {"resume_from", "/f"},
                        {"time_limit_s", 1.5},
                        {"collective_timeout_s", 90},
                        {"deterministic", true},
                        {"tf32", true},
                        {"check_replicas_every", 10},
                        {"device", "cuda"},
                        {"eval_every", 5}});
  const RunConfig run = Parse(recipe).run;
  EXPECT_EQ(run.mode, RunConfig::Mode::kPredict);
  EXPECT_EQ(run.predictions, "/p.jsonl");
  EXPECT_EQ(run.init_weights, "/w");
  EXPECT_EQ(run.resume_from, "/f");
  EXPECT_EQ(run.time_limit_s, 1.5);
  EXPECT_EQ(run.collective_timeout_s, 90);
  EXPECT_TRUE(run.deterministic);
  EXPECT_TRUE(run.tf32);
  EXPECT_EQ(run.check_replicas_every, 10);
  EXPECT_EQ(run.device, DeviceKind::kCuda);
  EXPECT_EQ(run.eval_every, 5);
  EXPECT_FALSE(run.normalize_by_targets);
  EXPECT_EQ(Parse(With("/run/trace", "/t")).run.trace, "/t");
  for (const char* mode : {"evaluate", "predict", "plan_memory", "plan_pipeline"}) {
    EXPECT_EQ(Refusal(With("/run", {{"mode", mode}})), "accepted") << "nothing to train";
  }
  const json plan = {{"mode", "plan_memory"}, {"ranks", 64}, {"ranks_per_node", 8}};
  const Recipe planned = Parse(With("/run", plan));
  EXPECT_EQ(planned.run.ranks_per_node, 8);
  EXPECT_EQ(planned.engine.batch.train_batch_size,
            64 * planned.engine.batch.micro_batch_size * planned.engine.batch.accumulation_steps);
  EXPECT_THAT(Refusal(With("/run/ranks", 64)), testing::HasSubstr("needs run.mode plan_memory"));
}

TEST(RecipeTest, ReadsProfileWithDefaults) {
  EXPECT_FALSE(Parse(Minimal()).run.profile);
  const RunConfig run = Parse(With("/run/profile", json::object())).run;
  ASSERT_TRUE(run.profile);
  EXPECT_EQ(run.profile->active, 3);
  const json given = {
      {"wait", 0}, {"warmup", 2}, {"active", 5}, {"sort_by", "memory"}, {"rows", 9}};
  const ProfileConfig profile = *Parse(With("/run/profile", given)).run.profile;
  EXPECT_EQ(profile.wait, 0);
  EXPECT_EQ(profile.warmup, 2);
  EXPECT_EQ(profile.active, 5);
  EXPECT_EQ(profile.sort_by, ProfileSort::kMemory);
  EXPECT_EQ(profile.rows, 9);
  EXPECT_FALSE(Parse(With("/run/profile", {{"enabled", false}})).run.profile);
  EXPECT_THAT(Refusal(With("/run/profile", {{"sort_bi", "memory"}})),
              testing::HasSubstr("did you mean \"sort_by\"?"));
  EXPECT_THAT(Refusal(With("/run/profile", {{"sort_by", "memmory"}})),
              testing::HasSubstr("did you mean \"memory\"?"));
  EXPECT_THAT(Refusal(With("/run/profile", {{"active", 0}})),
              testing::HasSubstr("run.profile.active"));
}

TEST(RecipeTest, ComparePrecisionMakesThreeEngines) {
  json recipe = Minimal();
  recipe["run"]["mode"] = "compare_precision";
  recipe["engine"]["bf16"] = {{"enabled", true}};
  recipe["engine"]["fp16"] = {{"enabled", false}, {"initial_scale_power", 4}};
  const std::vector<EngineConfig> engines = Parse(recipe).engines;
  ASSERT_EQ(engines.size(), 3u);
  EXPECT_EQ(engines[0].precision.model, Dtype::kFloat32);
  EXPECT_EQ(engines[1].precision.model, Dtype::kBFloat16);
  EXPECT_EQ(engines[2].precision.model, Dtype::kFloat16);
  EXPECT_EQ(engines[2].precision.loss_scaler->initial_scale_power, 4);
  EXPECT_TRUE(Parse(Minimal()).engines.empty());
}

TEST(RecipeTest, IgnoresBatchSizesWithoutTraining) {
  json recipe = Minimal();
  recipe["engine"]["train_batch_size"] = 33;
  EXPECT_THAT(Refusal(recipe), testing::HasSubstr("train_batch_size 33"));
  for (const char* mode : {"evaluate", "predict"}) {
    recipe["run"] = {{"mode", mode}};
    EXPECT_GE(Parse(recipe).engine.batch.micro_batch_size, 1);
    recipe["run"]["trace"] = "/t";
    EXPECT_THAT(Refusal(recipe), testing::HasSubstr("run.trace applies to training only"));
  }
}

TEST(RecipeTest, AcceptsPromptWithoutDataPath) {
  json recipe = Minimal();
  recipe["model"] = {{"type", "gpt2"}};
  recipe["data"] = {{"type", "text"}};
  EXPECT_THAT(Refusal(recipe), testing::HasSubstr("data.path is missing"));
  recipe["run"] = {{"mode", "predict"}, {"prompt", "To be"}};
  EXPECT_EQ(Parse(recipe).run.prompt, "To be");
}

TEST(RecipeTest, RefusesContradictingKeys) {
  json csv_cnn = With("/data", {{"type", "csv"}, {"path", "/c"}, {"label_column", 0}});
  EXPECT_EQ(Parse(csv_cnn).data.label_column, "0");
  const json plugin_tokens = [] {
    json recipe = With("/model", {{"type", "plugin"}, {"path", "/p.so"}});
    recipe["data"] = {{"type", "tokens"}, {"path", "/t"}};
    return recipe;
  }();
  const struct {
    json recipe;
    const char* message;
  } cases[] = {
      {With("/model/type", "resnet"), "model.type is \"resnet\"; did you mean \"resnet18\"?"},
      {With("/model/n_head", 3), "model.n_head is not a known key"},
      {With("/model", {{"type", "plugin"}}), "model.path is missing"},
      {With("/model", {{"type", "plugin"}, {"path", "p"}, {"params", 1}}),
       "model.params is 1, not an object"},
      {Gpt2({{"n_embd", 100}}), "model.n_embd is 100, which the 12 heads (n_head) do not divide"},
      {Gpt2({{"hidden_size", 100}}), "model.hidden_size is not a known key"},
      {Gpt2({}, {{"block_size", 1025}}),
       "data.block_size is 1025, but the model takes at most 1024"},
      {Gpt2({}, {{"sources", {{{"path", "/a"}}}}}), "data.sources and path exclude each other"},
      {Gpt2({}, {{"path", nullptr}, {"sources", {{{"weight", 1}}}}}),
       "data.sources[0].path is missing"},
      {Gpt2({}, {{"path", nullptr}, {"sources", {{{"path", "/a"}, {"weight", 0}}}}}),
       "data.sources[0].weight is 0; leave the source out"},
      {Gpt2({}, {{"path", nullptr}, {"sources", {{{"path", "/a"}}}}, {"val_fraction", 0.1}}),
       "data.val_fraction is for a single path; with sources, give val_path"},
      {Gpt2({}, {{"type", "idx"}}),
       "data.type does not fit the model: gpt2 takes tokens, text or chat"},
      {With("/data", {{"type", "tokens"}, {"path", "/t"}}),
       "data.type does not fit the model: mlp takes idx, cifar, image_folder or csv"},
      {plugin_tokens, "data.block_size is missing"},
      {With("/data", {{"type", "cifar"}}), "data.path is missing"},
      {With("/data/block_size", 64), "data.block_size is a setting of tokens, text and chat"},
      {With("/data/label_column", "x"), "data.label_column is a setting of csv"},
      {With("/data/val_fraction", 0.5),
       "data.val_fraction is a setting of image_folder, csv, tokens"},
      {With("/data/image_size", 64), "data.image_size is a setting of image_folder"},
      {With("/data", {{"type", "image_folder"}, {"path", "/d"}, {"image_size", 4097}}),
       "data.image_size is 4097"},
      {With("/data", {{"type", "image_folder"}, {"path", "/d"}, {"crop_size", 8}}),
       "did you mean \"image_size\"?"},
      {Gpt2({}, {{"val_fraction", 1}}), "data.val_fraction is 1"},
      {Gpt2({}, {{"val_fraction", 0.5}, {"val_path", "/v"}}), "exclude each other"},
      {With("/data/prefetch", -1), "data.prefetch is -1"},
      {With("/data/name", "x"), "data.name is a setting of the type plugin"},
      {WithPluginData({{"plugin", nullptr}}), "data.plugin is missing"},
      {WithPluginData({{"name", nullptr}}), "data.name is missing"},
      {WithPluginData({{"name", "a-b"}}), "data.name is \"a-b\"; names have letters, digits and _"},
      {WithPluginData({{"params", 1}}), "data.params is 1, not an object"},
      {WithPluginData({{"val_fraction", 0.5}}), "a plugin makes the data to evaluate on itself"},
      {With("/run/metrics", {"top_3"}), "run.metrics_plugin is missing"},
      {WithPluginData({}, {{"metrics", {"top 3"}}}), "run.metrics has \"top 3\""},
      {WithPluginData({}, {{"metrics", {"f1", "f1"}}}), "run.metrics has \"f1\" twice"},
      {WithPluginData({}, {{"metrics", {"loss"}}}), "\"loss\", which every evaluation has"},
      {WithPluginData({}, {{"metrics", {"top_3"}}, {"metrics_params", {{"top3", json::object()}}}}),
       "run.metrics_params.top3 is not one of run.metrics, did you mean \"top_3\"?"},
      {WithPluginData({}, {{"metrics", {"f1"}}, {"metrics_params", {{"f1", 2}}}}),
       "run.metrics_params.f1 must be an object"},
      {With("/run/mode", "pedict"), "did you mean \"predict\"?"},
      {With("/run/device", "gpu"), "run.device is \"gpu\""},
      {With("/run/loss_normalization", "tokens"),
       "run.loss_normalization is \"tokens\", but this data has no tokens; use samples"},
      {Gpt2({}, {}, {{"loss_normalization", "samples"}}),
       "run.loss_normalization is \"samples\", but the samples of this data are tokens"},
      {With("/run/prompt", "x"), "run.prompt is a setting of the model gpt2"},
      {With("/run/export_hf", "/x"), "run.export_hf is a setting of the model gpt2"},
      {With("/run/time_limit_s", 0), "run.time_limit_s is 0"},
      {With("/run/collective_timeout_s", 0.5), "run.collective_timeout_s"},
      {With("/run/save_every", 5), "run.save_every needs run.checkpoint_dir"},
      {With("/run/load_module_only", true),
       "run.load_module_only needs run.checkpoint_dir (--checkpoint_dir) or run.resume_from"},
      {With("/run",
            {{"steps", 1}, {"checkpoint_dir", "/c"}, {"resume", "t"}, {"resume_from", "/f"}}),
       "run.resume_from and run.resume (\"t\") both say where the run starts; give one of them"},
      {With("/run/check_replicas_every", 0), "run.check_replicas_every is 0"},
      {With("/run", {{"mode", "evaluate"}, {"steps", 1}, {"epochs", 1}}), "it has both"},
  };
  for (const auto& c : cases) {
    const std::string message = Refusal(c.recipe);
    EXPECT_THAT(message, testing::StartsWith("r.json: ")) << c.message;
    EXPECT_THAT(message, testing::HasSubstr(c.message));
  }
}

struct BatchCase {
  std::optional<int64_t> train, micro, accumulation;
  int64_t ranks;
  int64_t want_train, want_micro, want_accumulation;  // 0 if the recipe is refused
};

TEST(BatchTest, ComputesThirdBatchSize) {
  const std::vector<BatchCase> cases = {
      {32, 16, 1, 2, 32, 16, 1},
      {32, 8, 2, 2, 32, 8, 2},
      {33, 17, 2, 2, 0, 0, 0},
      {32, 18, 1, 2, 0, 0, 0},
      {32, 8, std::nullopt, 2, 32, 8, 2},
      {32, std::nullopt, 4, 2, 32, 4, 4},
      {std::nullopt, 4, 4, 2, 32, 4, 4},
      {32, std::nullopt, std::nullopt, 2, 32, 16, 1},
      {std::nullopt, 16, std::nullopt, 2, 32, 16, 1},
      {std::nullopt, std::nullopt, 4, 2, 0, 0, 0},
      {std::nullopt, std::nullopt, std::nullopt, 2, 0, 0, 0},
      {33, std::nullopt, std::nullopt, 2, 0, 0, 0},
      {1, std::nullopt, std::nullopt, 2, 0, 0, 0},
      {16, 16, std::nullopt, 2, 0, 0, 0},
      {std::nullopt, int64_t{1} << 31, int64_t{1} << 31, 1 << 24, 0, 0, 0}};
  const json kNothing = json::object();
  for (size_t i = 0; i < cases.size(); ++i) {
    const BatchCase& c = cases[i];
    try {
      const BatchConfig got =
          ResolveBatch(c.train, c.micro, c.accumulation, c.ranks, JsonObject(kNothing, "r", ""));
      EXPECT_EQ(got.train_batch_size, c.want_train) << "case " << i;
      EXPECT_EQ(got.micro_batch_size, c.want_micro) << "case " << i;
      EXPECT_EQ(got.accumulation_steps, c.want_accumulation) << "case " << i;
    } catch (const TrainError& error) {
      EXPECT_EQ(c.want_train, 0) << "case " << i << ": " << error.what();
    }
  }
}

TEST(BatchTest, RefusalShowsArithmetic) {
  json recipe = With("/engine/train_batch_size", 33);
  recipe["engine"]["train_micro_batch_size_per_gpu"] = 17;
  recipe["engine"]["gradient_accumulation_steps"] = 2;
  EXPECT_EQ(
      Refusal(recipe, 2),
      "r.json: engine: the batch sizes do not fit: train_batch_size 33 = "
      "train_micro_batch_size_per_gpu 17 x "
      "gradient_accumulation_steps 2 x 2 ranks (= 68); change one of them, or the number of ranks");
  EXPECT_THAT(Refusal(Minimal(), 3),
              testing::HasSubstr("train_batch_size 64 = train_micro_batch_size_per_gpu ? x "
                                 "gradient_accumulation_steps ? x 3 ranks has no whole"));
}

// The front end also reads recipes, so the refusal comes before any rank starts.
TEST(RecipeTest, RefusesToCompareWeightsThatDifferByDesign) {
  const std::pair<json, const char*> engines[] = {
      {{{"zero_optimization", {{"stage", 3}}}}, "at ZeRO stage 3 there are no copies"},
      {{{"pipeline", {{"stages", 2}}}}, "the stages of a pipeline have different weights"},
      {{{"parallel", {{"mode", "local_sgd"}, {"inner_steps", 2}}}}, "ranks train apart"},
      {{{"optimizer", {{"type", "ZeroOneAdam"}}}}, "ranks train apart"}};
  for (const auto& [engine, message] : engines) {
    json recipe = Minimal();
    recipe["engine"].update(engine);
    EXPECT_EQ(Refusal(recipe, 2), "accepted") << message;
    recipe["run"]["check_replicas_every"] = 3;
    EXPECT_THAT(Refusal(recipe, 2),
                testing::AllOf(testing::HasSubstr("run.check_replicas_every compares the"),
                               testing::HasSubstr(message)));
  }
}

TEST(RecipeTest, RefusesMemoryCheckpointsOfMeasuredStages) {
  json recipe = With("/engine/pipeline", {{"stages", 2}, {"partition", "best"}});
  recipe["run"]["memory_checkpoint"] = 20;
  EXPECT_EQ(Refusal(recipe), "accepted");
  recipe["engine"]["pipeline"]["partition"] = "profile";
  EXPECT_THAT(Refusal(recipe), testing::HasSubstr("run.memory_checkpoint needs the same stages"));
}

TEST(RecipeTest, RefusesCollectiveSettingsWithStaleness) {
  const json stale = {{"mode", "parameter_server"}, {"staleness", 2}};
  json recipe = With("/engine/parallel", stale);
  EXPECT_EQ(Refusal(recipe), "accepted");
  recipe["run"]["check_replicas_every"] = 3;
  EXPECT_THAT(Refusal(recipe), testing::HasSubstr("run.check_replicas_every compares the weights"));
  recipe["run"].erase("check_replicas_every");
  recipe["run"]["memory_checkpoint"] = 20;
  EXPECT_THAT(Refusal(recipe), testing::HasSubstr("run.memory_checkpoint copies the state"));
  recipe["run"].erase("memory_checkpoint");
  recipe["run"]["mode"] = "compare_precision";
  EXPECT_THAT(Refusal(recipe), testing::HasSubstr("run.mode compares steps of all ranks, but with "
                                                  "engine.parallel.staleness"));
}

}  // namespace
}  // namespace dslaunch::recipe_test
