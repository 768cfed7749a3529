#include "cli/plan/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/plan/recipe_catalog.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::recipe_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
namespace fs = std::filesystem;

Result<std::string> Json(const std::string& text, const TrainOptions& options = {}) {
  DSL_TRY_ASSIGN(const LoadedRecipe recipe, ReadRecipe(text, "r.yaml", options, "/cwd"));
  return recipe.json;
}

std::string Good(const std::string& text, const TrainOptions& options = {}) {
  const auto json = Json(text, options);
  EXPECT_TRUE(json.ok()) << json.error().message;
  return json.ok() ? *json : "";
}

TEST(ReadRecipe, ReadsScalarsByTypesOfYaml12) {
  const struct {
    std::string yaml, json;
  } cases[] = {
      {"1", "1"},
      {"-7", "-7"},
      {"+7", "7"},
      {"007", "7"},
      {"18446744073709551615", "18446744073709551615"},
      {"1.5", "1.5"},
      {"1e-3", "0.001"},
      {"1.0e+3", "1000.0"},
      {".5", "0.5"},
      {"5.", "5.0"},
      {"true", "true"},
      {"FALSE", "false"},
      {"", "null"},
      {"~", "null"},
      {"Null", "null"},
      {"yes", "\"yes\""},
      {"'1'", "\"1\""},
      {"\"true\"", "\"true\""},
      {"!!str 12", "\"12\""},
      {"1.2.3", "\"1.2.3\""},
      {"1_000", "\"1_000\""},
      {"0x10", "\"0x10\""},
      {"-x", "\"-x\""},
      {"1e", "\"1e\""},
      {"infinity", "\"infinity\""},
      {"nan", "\"nan\""},
      {"two words", "\"two words\""},
      {"[1, a, [], {}]", "[1,\"a\",[],{}]"},
      {"|\n      a\n      b", "\"a\\nb\\n\""},
      {"\"\\u00f6\"", "\"\xc3\xb6\""},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Good("run:\n  x: " + c.yaml + "\n"), "{\"run\":{\"x\":" + c.json + "}}") << c.yaml;
  }
}

TEST(ReadRecipe, ReadsJson) {
  const std::string json =
      R"({"data":{"path":"a\/b"},"engine":{"lr":1e-3,"on":true},"model":{"sizes":[784,128,10]}})";
  EXPECT_EQ(
      Good("{\n\t\"model\": {\"sizes\": [784, 128, 10]},\n\t\"engine\": {\"lr\": 1e-3, \"on\": "
           "true},\n"
           "\t\"data\": {\"path\": \"a\\/b\"}\n}\n"),
      R"({"data":{"path":"a/b"},"engine":{"lr":0.001,"on":true},"model":{"sizes":[784,128,10]}})");
  EXPECT_TRUE(Json(json).ok());
}

TEST(ReadRecipe, ExpandsAliases) {
  EXPECT_EQ(
      Good("model: &m {type: mlp, sizes: &s [1, 2]}\ndata: {a: *s, b: *m}\n"),
      R"({"data":{"a":[1,2],"b":{"sizes":[1,2],"type":"mlp"}},"model":{"sizes":[1,2],"type":"mlp"}})");
}

TEST(ReadRecipe, ErrorsHavePlaceAndReason) {
  const struct {
    std::string yaml, start, said;
  } cases[] = {
      {"run:\n  steps: 1\n  steps: 2\n", "r.yaml:3:3: ", "key 'steps' is given twice"},
      {"run: {a: 1, a: 2}\n", "r.yaml:1:13: ", "key 'a' is given twice"},
      {"run: 1\nmodle: {type: mlp}\n", "r.yaml: ", "unknown key 'modle', did you mean 'model'?"},
      {"run: {}\nlayers: {}\n",
       "r.yaml: ", "unknown key 'layers'; a recipe has model, data, run, engine, lora"},
      {"{\"train_batch_size\": 8, \"optimizer\": {}}\n",
       "r.yaml: ", "is a DeepSpeed configuration, not a recipe; give it beside the recipe"},
      {"run:\n  x: .nan\n", "r.yaml:2:6: ", "'.nan' is not a finite number"},
      {"run:\n  x: 1e999\n", "r.yaml:2:6: ", "number out of range: 1e999"},
      {"run:\n  x: 99999999999999999999\n", "r.yaml:2:6: ", "whole number out of range"},
      {"run:\n  x: [1, 2\n", "r.yaml:", "not valid YAML"},
      {"run:\n x: 1\n   y: 2\n", "r.yaml:", "not valid YAML"},
      {"run:\n  x: *nowhere\n", "r.yaml:2:6: ", "not valid YAML"},
      {"run: &a {x: *a}\n", "r.yaml:1:13: ", "alias to the value it is part of"},
      {"run:\n  <<: {x: 1}\n", "r.yaml:2:3: ", "merge keys"},
      {"run:\n  [1, 2]: x\n", "r.yaml:2:3: ", "a key must be a plain word"},
      {"run:\n  ~: x\n", "r.yaml:2:3: ", "a key must be a plain word"},
      {"run:\n  x: !!python/object:os.system a\n", "r.yaml:2:6: ", "tag"},
      {"run:\n  x: !!set {a}\n", "r.yaml:2:6: ", "tag"},
      {"run: {}\n---\nrun: {}\n", "r.yaml: ", "more than one document"},
      {"", "r.yaml: ", "not a recipe"},
      {"- run\n", "r.yaml: ",
       "not a recipe: its top level must be a map with the keys model, data, run, engine, lora"},
      {"run: {x: \"\xff\"}\n", "r.yaml", ""},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.yaml);
    const auto json = Json(c.yaml);
    if (c.said.empty() && json.ok()) continue;  // yaml-cpp itself replaces such bytes
    ASSERT_FALSE(json.ok()) << *json;
    EXPECT_EQ(json.error().code, ExitCode::kBadInput);
    EXPECT_THAT(json.error().message, StartsWith(c.start));
    EXPECT_THAT(json.error().message, HasSubstr(c.said));
  }
}

TEST(ReadRecipe, RejectsAliasBombsQuickly) {
  std::string aliases = "run:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    aliases += "  a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) aliases += (j == 0 ? "*a" : ", *a") + std::to_string(i - 1);
    aliases += "]\n";
  }
  std::string long_text = "run:\n  t: &t " + std::string(500'000, 'x') + "\n  all: [";
  for (int i = 0; i < 10'000; ++i) long_text += "*t, ";
  std::string anchored_depth = "run:\n  a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i) {
    anchored_depth += "  a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" +
                      std::to_string(i - 1) + "]\n";
  }
  const struct {
    std::string yaml, said;
  } cases[] = {
      {aliases, "too large"},
      {long_text + "]\n", "too large"},
      {anchored_depth, "nested more than 64 levels"},
      {"run: " + std::string(100, '[') + std::string(100, ']'), "nested more than 64 levels"},
      {"run: " + std::string(100'000, '['), ""},
      {"run: " + std::string(100'000, '{'), ""},
  };
  for (const auto& c : cases) {
    const auto start = std::chrono::steady_clock::now();
    const auto json = Json(c.yaml);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
    ASSERT_FALSE(json.ok());
    EXPECT_EQ(json.error().code, ExitCode::kBadInput);
    EXPECT_THAT(json.error().message, HasSubstr(c.said));
  }
}

TEST(ReadRecipe, RejectsRecipeTooLargeForVariable) {
  const std::string fits(kMaxRecipeJsonBytes - 20, 'x');
  EXPECT_TRUE(Json("run: {x: " + fits + "}").ok());
  const auto large = Json("run: {x: " + fits + std::string(20, 'x') + "}");
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ExitCode::kBadInput);
  EXPECT_THAT(large.error().message, HasSubstr("too large"));
}

TEST(ReadRecipe, RejectsOptionAndSetOfSameKey) {
  const auto refusal = [](const TrainOptions& options) {
    const auto json = Json("run: {steps: 3}\n", options);
    EXPECT_TRUE(json.ok() || json.error().code == ExitCode::kUsage);
    return json.ok() ? "" : json.error().message;
  };
  TrainOptions options;
  options.epochs = 3;
  options.sets = {"run.epochs=4"};
  EXPECT_EQ(refusal(options),
            "--epochs and --set run.epochs both set run.epochs; give one of them");
  options.sets = {"run.steps=4"};
  EXPECT_EQ(refusal(options),
            "--epochs and --set run.steps both set the length of the run; give one of them");
  options.sets = {"run.seed=4"};
  EXPECT_EQ(refusal(options), "");
  options.seed = 5;
  EXPECT_EQ(refusal(options), "--seed and --set run.seed both set run.seed; give one of them");
}

TEST(ReadRecipe, ReportsStepsThatDifferFromSchedule) {
  const auto notice = [](std::optional<int64_t> steps, const std::vector<std::string>& sets) {
    TrainOptions options;
    options.steps = steps;
    options.sets = sets;
    const std::string text =
        "run: {steps: 400}\n"
        "engine: {scheduler: {type: WarmupCosineLR, params: {total_num_steps: 400}}}\n";
    const auto recipe = ReadRecipe(text, "r.yaml", options, "/cwd");
    return recipe.ok() ? recipe->notices : std::vector<std::string>{recipe.error().message};
  };
  EXPECT_THAT(notice(10, {}),
              ElementsAre(AllOf(HasSubstr("still of 400 steps"),
                                HasSubstr("--set engine.scheduler.params.total_num_steps=10"))));
  EXPECT_THAT(notice(400, {}), IsEmpty());
  EXPECT_THAT(notice(10, {"engine.scheduler.params.total_num_steps=10"}), IsEmpty());
  EXPECT_THAT(notice(std::nullopt, {}), IsEmpty());
}

TEST(ReadRecipe, FillsAutoOfEngineFileFromRecipe) {
  const TempDir folder;
  const std::string file = folder / "ds.json";
  std::ofstream(file) << "\xEF\xBB\xBF"
                         R"({"train_batch_size": "auto", "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}})";
  TrainOptions options;
  options.deepspeed_config = file;
  options.sets = {"engine.optimizer.params.eps=0.5"};
  const auto recipe = ReadRecipe(
      "run: {steps: 4}\n"
      "engine: {train_batch_size: 32, optimizer: {type: SGD, params: {lr: 0.25}},\n"
      "         scheduler: {type: WarmupDecayLR, params: {total_num_steps: 400}}}\n",
      "r.yaml", options, "/cwd");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  const auto engine = nlohmann::json::parse(recipe->json)["engine"];
  EXPECT_EQ(engine["train_batch_size"], 32);
  EXPECT_EQ(engine["optimizer"]["params"]["lr"], 0.25);
  EXPECT_EQ(engine["optimizer"]["params"]["eps"], 0.5);
  EXPECT_EQ(engine["scheduler"]["params"]["total_num_steps"], "auto") << "of the run";
  EXPECT_THAT(recipe->notices,
              ElementsAre(file + ": \"auto\" is taken as optimizer.params.lr 0.25, "
                                 "train_batch_size 32 (from the recipe r.yaml)",
                          file + ": \"auto\" is taken as gradient_clipping 1.0 (the defaults of "
                                 "Hugging Face's Trainer)"));
}

TEST(ReadRecipe, FromFolderGivesModelAndWeights) {
  const TempDir folder;
  folder.Write("config.json",
               R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32,
                   "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "max_position_embeddings": 64, "eos_token_id": [2, 3]})");
  const auto read = [&](const std::string& rest, const TrainOptions& options = {}) {
    return ReadRecipe(rest, folder / "r.yaml", options, folder.path());
  };
  const auto loaded = read("model: {from: .}\ndata: {type: text}\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto json = nlohmann::json::parse(loaded->json);
  EXPECT_EQ(json["model"]["type"], "decoder");
  EXPECT_EQ(json["model"]["hidden_size"], 32);
  EXPECT_EQ(json["model"]["other_keys"]["eos_token_id"], nlohmann::json({2, 3}));
  EXPECT_EQ(json["run"]["init_weights"], folder.path());
  EXPECT_THAT(loaded->notices, ElementsAre(HasSubstr("initial weights: " + folder.path())));

  TrainOptions random;
  random.sets = {"model.from=" + folder.path(), "run.init_weights="};
  const auto without = read("data: {type: text}\n", random);
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_TRUE(nlohmann::json::parse(without->json)["run"]["init_weights"].is_null());
  EXPECT_THAT(without->notices, IsEmpty());

  EXPECT_THAT(read("model:\n  from: .\n  type: decoder\n").error().message,
              HasSubstr("r.yaml:2:3: model.from gives the whole section; remove model.type"));
  EXPECT_THAT(read("model: {from: nowhere}\n").error().message, HasSubstr("nowhere/config.json"));
  folder.Write("config.json", R"({"model_type": "mixtral"})");
  EXPECT_THAT(read("model: {from: .}\n").error().message,
              AllOf(HasSubstr("config.json: model_type is \"mixtral\""), HasSubstr("experts")));
}

TEST(RecipeCatalog, ListsShowsAndExplains) {
  const TempDir folder;
  folder.Write("b.yaml", "# A tiny net on\n# nothing: see below. More.\nmodel: {type: mlp}\n");
  folder.Write("a.yaml", "model: {type: cnn}\n");
  const std::vector<BuiltInRecipe> recipes = ListRecipes({folder.path(), folder / "none"});
  EXPECT_EQ(RecipeTable(recipes),
            "RECIPE  WHAT IT TRAINS\n"
            "a\n"
            "b       A tiny net on nothing\n");
  EXPECT_EQ(*RecipeText(recipes, "a"), "model: {type: cnn}\n");
  EXPECT_THAT(RecipeText(recipes, "zzzz").error().message, HasSubstr("dslaunch recipe ls"));
  EXPECT_EQ(*ExplainRecipeKey("run.steps"),
            "run.steps: whole number, at least 1\n    optimizer steps\n");
  EXPECT_THAT(*ExplainRecipeKey("engine.fp16"), HasSubstr("  engine.fp16.loss_scale "));
  EXPECT_THAT(*ExplainRecipeKey("lr"), HasSubstr("engine.optimizer.params.lr: number"));
  EXPECT_THAT(*ExplainRecipeKey(""), HasSubstr("engine.zero_optimization"));
  for (const auto& [key, said] : {std::pair("run.stesp", "did you mean run.steps?"),
                                  {"steps_per_epoch", "set run.steps"},
                                  {"num_train_epochs", "did you mean epochs?"},
                                  {"qqqqqqqqqq", "lists the sections"}}) {
    const Result<std::string> text = ExplainRecipeKey(key);
    ASSERT_FALSE(text.ok()) << key;
    EXPECT_EQ(text.error().code, ExitCode::kUsage);
    EXPECT_THAT(text.error().message, HasSubstr(said));
  }
  EXPECT_THAT(RecipeKeyPaths(), testing::Contains("engine.optimizer.params.lr"));
}

TEST(ReadRecipe, OptionsOverrideKeys) {
  TrainOptions options;
  options.steps = 5;
  options.seed = 0;
  options.data = "rel/path";
  options.metrics_jsonl = "out/../m.jsonl";
  EXPECT_EQ(
      Good("run: {epochs: 3}\n", options),
      R"({"data":{"path":"rel/path"},"run":{"metrics_jsonl":"/cwd/m.jsonl","seed":0,"steps":5}})");
  TrainOptions epochs;
  epochs.epochs = 2;
  epochs.metrics_jsonl = "/abs/m.jsonl";
  EXPECT_EQ(Good("run: {steps: 3}\n", epochs),
            R"({"run":{"epochs":2,"metrics_jsonl":"/abs/m.jsonl"}})");
}

TEST(ReadRecipe, ReadsCheckpointOptions) {
  TrainOptions options;
  options.checkpoint_dir = "ckpt";
  options.save_every = 20;
  options.resume = "step_000040";
  EXPECT_EQ(
      Good("run: {steps: 3}\n", options),
      R"({"run":{"checkpoint_dir":"/cwd/ckpt","resume":"step_000040","save_every":20,"steps":3}})");
  options.async_save = options.load_module_only = true;
  EXPECT_THAT(
      Good("run: {steps: 3}\n", options),
      testing::AllOf(HasSubstr(R"("async_save":true)"), HasSubstr(R"("load_module_only":true)")));
  options.async_save = options.load_module_only = false;
  options.checkpoint_dir.reset();
  TrainOptions weights;
  weights.load_module_only = true;
  EXPECT_FALSE(Json("run: {steps: 3}\n", weights).ok());
  EXPECT_TRUE(Json("run: {steps: 3, resume_from: /other}\n", weights).ok());
  EXPECT_TRUE(Json("run: {checkpoint_dir: /c}\n", options).ok());
  const auto refused = Json("run: {steps: 3}\n", options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ExitCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("--save_every needs --checkpoint_dir"));
}

TEST(ReadRecipe, EveryOptionSetsItsKey) {
  TrainOptions options;
  options.task = TrainOptions::Task::kPredict;
  options.init_weights = "w";
  options.resume_from = "ds";
  options.memory_checkpoint = 20;
  options.export_hf = "/hf";
  options.trace = "t/";
  options.profile = true;
  options.profile_sort = "calls";
  options.time_limit_s = 1.5;
  options.deterministic = true;
  options.output = "p.jsonl";
  options.prompt = "To be: #1";
  options.max_new_tokens = 3;
  options.temperature = 0;
  options.top_k = 5;
  EXPECT_EQ(
      Good("run: {}\n", options),
      R"({"run":{"deterministic":true,"export_hf":"/hf","init_weights":"/cwd/w","max_new_tokens":3,)"
      R"("memory_checkpoint":20,)"
      R"("mode":"predict","predictions":"/cwd/p.jsonl",)"
      R"("profile":{"enabled":true,"sort_by":"calls"},"prompt":"To be: #1","resume_from":"/cwd/ds",)"
      R"("temperature":0.0,)"
      R"("time_limit_s":1.5,"top_k":5,"trace":"/cwd/t/"}})");
  for (const auto& [task, mode] :
       {std::pair(TrainOptions::Task::kEvaluate, "evaluate"),
        std::pair(TrainOptions::Task::kPlanMemory, "plan_memory"),
        std::pair(TrainOptions::Task::kPlanPipeline, "plan_pipeline"),
        std::pair(TrainOptions::Task::kComparePrecision, "compare_precision")}) {
    TrainOptions other;
    other.task = task;
    EXPECT_EQ(Good("run: {steps: 3}\n", other),
              std::string(R"({"run":{"mode":")") + mode + R"(","steps":3}})");
  }
}

TEST(ReadRecipe, PluginReplacesModel) {
  TrainOptions options;
  options.plugin = "build/libmine.so";
  EXPECT_EQ(Good("model: {type: mlp, hidden_size: 3}\n", options),
            R"({"model":{"path":"/cwd/build/libmine.so","type":"plugin"}})");
  EXPECT_EQ(Good("model: {type: plugin, path: /old.so, params: {depth: 3}}\n", options),
            R"({"model":{"params":{"depth":3},"path":"/cwd/build/libmine.so","type":"plugin"}})");
}

TEST(WithoutCommentsTest, ReplacesCommentsByBlanks) {
  EXPECT_EQ(WithoutComments("{\"a\": 1, // x\n \"b\": /* y\n z */ 2}"),
            "{\"a\": 1,     \n \"b\":     \n      2}");
  for (const std::string text :
       {R"({"url": "http://x/*y*/", "q": "\"//"})", R"({"a": 1 / 2})", R"("\)", "/", ""}) {
    EXPECT_EQ(WithoutComments(text), text);
  }
  EXPECT_EQ(WithoutComments("1 // to the end"), "1              ");
  EXPECT_EQ(WithoutComments("1 /* to the end"), "1              ");
}

TEST(ReadRecipe, ReadsJsonWithComments) {
  EXPECT_EQ(Good("// mine\n{\"run\": {\"steps\": 3 /* few */}}"), R"({"run":{"steps":3}})");
  EXPECT_EQ(Good("run: {url: http://x}\n"), R"({"run":{"url":"http://x"}})");
}

TEST(ReadRecipe, SetMakesMapsAndReadsYamlValues) {
  TrainOptions options;
  options.sets = {"engine.optimizer.params.lr=1e-3",
                  "run.steps=9",
                  "model.sizes=[1, 2]",
                  "model.name='1'",
                  "data.empty=",
                  "run.eq=a=b",
                  "data.map={a: true}",
                  "run.twice=one",
                  "run.twice=two"};
  EXPECT_EQ(
      Good("engine: {optimizer: {type: Adam}}\nmodel:\n", options),
      R"({"data":{"empty":null,"map":{"a":true}},"engine":{"optimizer":{"params":{"lr":0.001},"type":"Adam"}},)"
      R"("model":{"name":"1","sizes":[1,2]},"run":{"eq":"a=b","steps":9,"twice":"two"}})");
}

TEST(ReadRecipe, RemovesLaunchOptions) {
  EXPECT_EQ(Good("launch: {num_gpus: 2}\nmodel: {type: mlp}\n"), R"({"model":{"type":"mlp"}})");
  TrainOptions set;
  set.sets = {"launch.num_gpus=2"};
  const auto json = Json("model: {type: mlp}\n", set);
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.error().code, ExitCode::kUsage);
  EXPECT_THAT(json.error().message, HasSubstr("give launch options before 'train'"));
}

TEST(ReadRecipe, RejectsWrongSetsAsUsage) {
  const struct {
    std::string set, said;
  } cases[] = {
      {"run.steps", "--set run.steps: write --set key.path=value"},
      {"=1", "write --set key.path=value"},
      {"run..x=1", "write --set key.path=value"},
      {"run.=1", "write --set key.path=value"},
      {"run.steps.x=1", "--set run.steps.x=1: 'run.steps' is not a map"},
      {"run.x=[1", "--set run.x=[1:1:"},
      {"run.x=.inf", "not a finite number"},
      {"rnu.x=1", "--set: unknown key 'rnu', did you mean 'run'?"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.set);
    TrainOptions options;
    options.sets = {c.set};
    const auto json = Json("run: {steps: 3}\n", options);
    ASSERT_FALSE(json.ok());
    EXPECT_EQ(json.error().code, ExitCode::kUsage);
    EXPECT_THAT(json.error().message, HasSubstr(c.said));
  }
}

TEST(ReadRecipe, AnyBytesGiveJsonOrError) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> parts = {"run", "model", ": ", "\n",  "  ",   "- ",   "[",  "]",
                                          "{",   "}",     ",",  "&a ", "*a",   "!!x ", "\"", "'",
                                          "|",   ">",     "\t", "---", "\xff", "1",    "#",  "? "};
  for (int round = 0; round < 20'000; ++round) {
    std::string text = "run:";
    for (size_t n = random() % 16; n > 0; --n) text += parts[random() % parts.size()];
    const auto json = Json(text);
    if (json.ok()) continue;
    EXPECT_THAT(json.error().message, StartsWith("r.yaml")) << text;
  }
}

class LoadRecipeTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "builtin");
    fs::create_directories(root_ / "cwd");
    request_.cwd = root_ / "cwd";
    request_.recipe_dirs = {root_ / "missing", root_ / "builtin"};
    Write("builtin/fashion_mnist.yaml", "model: {type: builtin}\n");
    Write("builtin/tiny.yaml", "model: {type: tiny}\n");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name) << text;
  }

  Result<LoadedRecipe> Load(std::optional<std::string> name) {
    request_.options.recipe = std::move(name);
    return LoadRecipe(request_);
  }

  TempDir dir_;
  fs::path root_ = dir_.path();
  RecipeRequest request_;
};

TEST_F(LoadRecipeTest, PrefersFileOfFolderWithoutName) {
  auto recipe = Load(std::nullopt);
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(recipe->json, R"({"model":{"type":"builtin"}})");
  EXPECT_THAT(recipe->notices, ElementsAre("no recipe named: taking the built-in fashion_mnist"));
  Write("cwd/dslaunch.yaml", "model: {type: mine}\n");
  recipe = Load(std::nullopt);
  ASSERT_TRUE(recipe.ok());
  EXPECT_EQ(recipe->json, R"({"model":{"type":"mine"}})");
  EXPECT_THAT(recipe->notices, ElementsAre("no recipe named: taking ./dslaunch.yaml"));
}

TEST_F(LoadRecipeTest, RefusesUnnamedRecipeWithPluginOrOtherOwner) {
  Write("cwd/dslaunch.yaml", "model: {type: plugin, path: /x.so}\n");
  const auto plugin = Load(std::nullopt);
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.error().code, ExitCode::kBadInput);
  EXPECT_THAT(plugin.error().message,
              HasSubstr("dslaunch.yaml:1:23: model.type plugin loads a library"));
  EXPECT_THAT(plugin.error().message, HasSubstr("train ./dslaunch.yaml"));
  EXPECT_TRUE(Load("./dslaunch.yaml").ok());
  Write("cwd/dslaunch.yaml", "data: {type: plugin, name: x, plugin: /x.so}\n");
  request_.options.plugin = "/own.so";  // replaces only the plugin of the model
  EXPECT_THAT(Load(std::nullopt).error().message, HasSubstr("data.plugin loads a library"));
  Write("cwd/dslaunch.yaml", "run: {metrics: [x], metrics_plugin: /x.so}\n");
  EXPECT_THAT(Load(std::nullopt).error().message, HasSubstr("run.metrics_plugin loads a library"));
  request_.options.sets = {"run.metrics_plugin=/own.so"};
  EXPECT_TRUE(Load(std::nullopt).ok());
  request_.options.sets.clear();
  Write("cwd/dslaunch.yaml", "model: {type: plugin, path: /x.so}\n");

  request_.options.plugin = "/own.so";
  EXPECT_TRUE(Load(std::nullopt).ok());
  request_.options.plugin.reset();
  for (const char* name : {"dslaunch.yaml", "fashion_mnist"}) {
    Write(std::string("cwd/") + name, "model: {type: mine}\n");
    fs::permissions(root_ / "cwd" / name, fs::perms(0666));
    const auto shared =
        Load(name == std::string("dslaunch.yaml") ? std::nullopt : std::optional(name));
    ASSERT_FALSE(shared.ok()) << name;
    EXPECT_THAT(shared.error().message, HasSubstr("may be changed by others (mode 0666)"));
    EXPECT_THAT(shared.error().message, HasSubstr("name it: --run_file "));
    EXPECT_TRUE(Load(std::string("./") + name).ok());
  }
}

TEST_F(LoadRecipeTest, NameMeansFileThenBuiltIn) {
  auto recipe = Load("tiny");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_THAT(recipe->notices, IsEmpty());
  EXPECT_EQ(recipe->source, (root_ / "builtin/tiny.yaml").string());
  Write("cwd/tiny", "model: {type: file}\n");
  EXPECT_EQ(Load("tiny")->json, R"({"model":{"type":"file"}})");
  EXPECT_TRUE(Load((root_ / "builtin/tiny.yaml").string()).ok());
  fs::create_directories(root_ /
                         "cwd/fashion_mnist");  // a folder of results must not hide the recipe
  EXPECT_TRUE(Load("fashion_mnist").ok());
}

TEST_F(LoadRecipeTest, UnknownNameListsKnownRecipes) {
  for (const std::string name : {"tinny", "../builtin/tiny", "no/such.yaml", ""}) {
    const auto recipe = Load(name);
    ASSERT_FALSE(recipe.ok()) << name;
    EXPECT_EQ(recipe.error().code, ExitCode::kBadInput);
    EXPECT_THAT(recipe.error().message, HasSubstr("'" + name + "'"));
    EXPECT_THAT(recipe.error().message, HasSubstr("built-in: fashion_mnist, tiny"));
  }
}

TEST_F(LoadRecipeTest, EngineFileReplacesSection) {
  const std::string ds = (root_ / "cwd/ds.json").string();
  Write("cwd/ds.json", "// a tutorial's\n{\"train_batch_size\": 64, // samples\n \"fp16\": {}}\n");
  Write("cwd/r.yaml", "engine: {train_batch_size: 8, bf16: {}}\n");
  request_.options.deepspeed_config = "ds.json";
  request_.options.sets = {"engine.train_batch_size=16"};
  auto recipe = Load("r.yaml");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(recipe->json,
            R"({"engine":{"fp16":{},"train_batch_size":16},"engine_source":")" + ds + "\"}");
  request_.options = {};
  fs::create_directories(root_ / "cwd/sub");
  Write("cwd/sub/r.yaml", "engine: ../ds.json\n");
  recipe = Load("sub/r.yaml");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(recipe->json,
            R"({"engine":{"fp16":{},"train_batch_size":64},"engine_source":")" + ds + "\"}")
      << "a path in a recipe starts at the recipe's folder";
}

TEST_F(LoadRecipeTest, ErrorsNameEngineFile) {
  Write("cwd/twice.json", "{\"a\": 1,\n \"a\": 2}");
  Write("cwd/broken.json", "{\"a\": [1,\n");
  Write("cwd/list.json", "[1]");
  Write("cwd/block.json", "a: 1\n");
  Write("cwd/empty.json", "// nothing\n");
  const struct {
    const char *file, *said;
  } cases[] = {{"twice.json", ":2:2: key 'a' is given twice"},
               {"broken.json", ": not valid JSON: parse error at line 2, column 1"},
               {"list.json", ": not a DeepSpeed configuration"},
               {"block.json", ": not a DeepSpeed configuration"},
               {"empty.json", ": not a DeepSpeed configuration"},
               {"missing.json", "No such file"}};
  for (const auto& c : cases) {
    request_.options.deepspeed_config = c.file;
    const auto recipe = Load("fashion_mnist");
    ASSERT_FALSE(recipe.ok()) << c.file;
    EXPECT_EQ(recipe.error().code, ExitCode::kBadInput);
    EXPECT_THAT(recipe.error().message, HasSubstr((root_ / "cwd" / c.file).string()));
    EXPECT_THAT(recipe.error().message, HasSubstr(c.said));
  }
  request_.options = {};
  request_.options.sets = {"engine=ds.json"};
  const auto set = Load("fashion_mnist");
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error().code, ExitCode::kUsage);
  EXPECT_THAT(set.error().message, HasSubstr("--deepspeed_config FILE"));
}

constexpr char kWhole[] =
    "model: {type: mlp}\n"
    "data: {type: idx}\n"
    "run:\n"
    "  steps: 3\n"
    "engine:\n"
    "  train_batch_size: 8\n";

// Returns the exit code and the message, such as "65 r.yaml:7:3: ..."; "" if the recipe is
// accepted.
std::string Refusal(const std::string& text, const TrainOptions& options = {}, int64_t ranks = 2) {
  const auto recipe = ReadRecipe(text, "r.yaml", options, "/cwd");
  EXPECT_TRUE(recipe.ok()) << recipe.error().message;
  const Result<void> checked = CheckContent(*recipe, ranks);
  if (checked.ok()) return "";
  return std::to_string(static_cast<int>(checked.error().code)) + " " + checked.error().message;
}

TEST(CheckContent, ErrorsNameLineOfKey) {
  const std::string whole = kWhole;
  EXPECT_EQ(Refusal(whole), "");
  EXPECT_THAT(Refusal(whole + "  zero_optimisation: {stage: 2}\n"),
              StartsWith("65 r.yaml:7:3: engine.zero_optimisation is not a known key; did you mean "
                         "\"zero_optimization\"?"));
  EXPECT_THAT(Refusal(whole + "  optimizer:\n    type: AdamW\n    params:\n      lr: fast\n"),
              StartsWith("65 r.yaml:10:7: engine.optimizer.params.lr is \"fast\", not a number"));
  EXPECT_THAT(
      Refusal(whole + "  optimizer:\n    type: SGD\n    params: {lr: 1}\n"
                      "    param_groups:\n      - {max_dims: 1, lr: 1}\n      - max_dims: 1\n"
                      "        lr: -1\n"),
      StartsWith("65 r.yaml:13:9: engine.optimizer.param_groups[1].lr is -1"));
  EXPECT_THAT(
      Refusal("{\"model\": {\"type\": \"mlp\"}, // a comment\n \"data\": {\"type\": \"idx\"},\n"
              " \"run\": {\"steps\": 0},\n \"engine\": {\"train_batch_size\": 8}}\n"),
      StartsWith("65 r.yaml:3:10: run.steps is 0"));
}

TEST(CheckContent, MissingKeyIsReportedAtItsSection) {
  EXPECT_THAT(Refusal("data: {type: idx}\n"), StartsWith("65 r.yaml: model is missing"));
  EXPECT_THAT(Refusal("model: {}\ndata: {type: idx}\n"),
              StartsWith("65 r.yaml:1:1: model.type is missing"));
  EXPECT_THAT(Refusal("model: &a {type: mlp}\ndata: *a\n"),
              StartsWith("65 r.yaml:2:1: data.type is \"mlp\""))
      << "an alias has no places of its own";
}

TEST(CheckContent, ErrorsNameOptionThatSetKey) {
  TrainOptions options;
  options.sets = {"run.steps=0"};
  EXPECT_THAT(Refusal(kWhole, options), StartsWith("64 --set run.steps=0: run.steps is 0"));
  options.sets = {"engine.fp16={enabled: true, loss_scale: -1}"};
  EXPECT_THAT(Refusal(kWhole, options),
              StartsWith("64 --set engine.fp16={enabled: true, loss_scale: -1}: "
                         "engine.fp16.loss_scale is -1"));
  options.sets = {"engine.train_batch_size=3"};
  EXPECT_THAT(Refusal(kWhole, options),
              HasSubstr("r.yaml:5:1: engine: the batch sizes do not fit"));
  options = {};
  options.temperature = 0.5;
  EXPECT_THAT(Refusal(kWhole, options), StartsWith("64 --temperature: run.temperature "));
}

TEST(CheckContent, KeyWithLongPathIsReportedAtItsSection) {
  const std::string longest(kMaxPlacedPathBytes, 'k');
  EXPECT_THAT(Refusal(kWhole + ("  " + longest) + ": 1\n"),
              StartsWith("65 r.yaml:5:1: engine.kkkk"));
}

TEST(CheckContent, ChecksRanksOnlyIfKnown) {
  EXPECT_THAT(Refusal(kWhole, {}, 3),
              StartsWith("65 r.yaml:5:1: engine: the batch sizes do not fit"));
  EXPECT_EQ(Refusal(kWhole, {}, 0), "");
}

TEST(CheckContent, ErrorsContainNoControlCharacters) {
  const std::string said = Refusal(std::string(kWhole) + "  \"z\\u009b31m\": 1\n");
  EXPECT_THAT(said, StartsWith("65 r.yaml:7:3: "));
  EXPECT_EQ(said.find("\xc2\x9b"), std::string::npos);
}

TEST_F(LoadRecipeTest, ErrorsNameLineOfKeyInEngineFile) {
  const std::string ds = (root_ / "cwd/ds.json").string();
  Write("cwd/ds.json", "{\"train_batch_size\": 8, // samples\n \"fp16\": {\"loss_scale\": -1}}\n");
  Write("cwd/r.yaml", std::string(kWhole) + "  bf16: {enabled: 3}\n");
  request_.options.deepspeed_config = "ds.json";
  auto recipe = Load("r.yaml");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_THAT(CheckContent(*recipe, 2).error().message,
              StartsWith(ds + ":2:11: fp16.loss_scale is -1"));
  EXPECT_EQ(CheckContent(*recipe, 2).error().code, ExitCode::kBadInput);
  request_.options.sets = {"engine.fp16.loss_scale=-2"};
  recipe = Load("r.yaml");
  EXPECT_THAT(CheckContent(*recipe, 2).error().message,
              StartsWith("--set engine.fp16.loss_scale=-2: fp16.loss_scale is -2"));
}

TEST_F(LoadRecipeTest, RejectsLargeFiles) {
  Write("cwd/large.yaml", std::string(kMaxTextFileBytes + 1, '#'));
  const auto recipe = Load("large.yaml");
  ASSERT_FALSE(recipe.ok());
  EXPECT_THAT(recipe.error().message, HasSubstr("larger than 1 MiB"));
}

TEST_F(LoadRecipeTest, ErrorsNameTheFile) {
  Write("cwd/bad.yaml", "run:\n  a: 1\n  a: 2\n");
  EXPECT_THAT(Load("bad.yaml").error().message,
              StartsWith((root_ / "cwd/bad.yaml").string() + ":3:3: "));
}

}  // namespace
}  // namespace dslaunch::recipe_test
