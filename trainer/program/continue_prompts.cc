#include "trainer/program/continue_prompts.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "trainer/base/crc32.h"
#include "trainer/base/format.h"
#include "trainer/base/log.h"
#include "trainer/base/seed.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/device/free_memory.h"
#include "trainer/program/generate.h"
#include "trainer/program/prediction_writer.h"

namespace dslaunch {
namespace {

// The number of texts that are generated at a time, and the capacity of their cache in tokens.
struct Plan {
  int64_t rows = 1;
  int64_t capacity = 0;
  CachingModel* caching = nullptr;
};

int64_t BytesOfElement(const TrainingModel& training_model) {
  for (const at::Tensor& parameter : training_model.module().parameters()) {
    return static_cast<int64_t>(parameter.element_size());
  }
  return sizeof(float);
}

// Returns a plan whose keys and values fit into memory, by halving the number of texts. Throws
// kUnavailable if the memory is too small for one text.
Plan MakePlan(TrainingModel& training_model, const Recipe& recipe,
              const std::vector<TextPrompt>& prompts, const ProcessGroup& group) {
  size_t longest = 0;
  for (const TextPrompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  Plan plan;
  plan.capacity = std::min(recipe.model.needs().positions,
                           static_cast<int64_t>(longest) + recipe.run.max_new_tokens);
  plan.rows =
      std::min(training_model.core().micro_batch_size(), static_cast<int64_t>(prompts.size()));
  plan.caching = dynamic_cast<CachingModel*>(&training_model.model());
  if (plan.caching == nullptr || plan.caching->CachedLayers().empty()) {
    plan.caching = nullptr;
    return plan;
  }
  const auto bytes = [&] {
    return KeyValueCache::Bytes(plan.caching->CachedLayers(), plan.rows, plan.capacity,
                                BytesOfElement(training_model));
  };
  const std::optional<int64_t> free = MemoryForTensors(group.rank_device());
  while (free && plan.rows > 1 && bytes() > *free) plan.rows /= 2;
  const std::string what = "the keys and values of " + std::to_string(plan.rows) +
                           (plan.rows == 1 ? " text" : " texts") + " of up to " +
                           std::to_string(plan.capacity) + " tokens take " + BytesText(bytes());
  if (free && bytes() > *free) {
    throw TrainError(ExitCode::kUnavailable,
                     what + ", but " + BytesText(*free) +
                         " are available; lower --max_new_tokens or shorten the prompts");
  }
  if (group.rank() == 0) PrintError(what);
  return plan;
}

std::string JsonLine(size_t index, const TextPrompt& prompt, const std::string& text,
                     const Generated& generated) {
  const nlohmann::ordered_json line = {{"index", index},
                                       {"prompt", prompt.text},
                                       {"text", text},
                                       {"token_ids", generated.tokens},
                                       {"finish", generated.ended ? "stop" : "length"}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

class PromptRun {
 public:
  PromptRun(TrainingModel& training_model, const Recipe& recipe, const TextCodec& codec,
            const std::vector<TextPrompt>& prompts, const Plan& plan)
      : training_model_(training_model),
        recipe_(recipe),
        codec_(codec),
        prompts_(prompts),
        plan_(plan) {}

  // Continues the prompts [begin, end) together. Returns the lines to write; "" if there are no
  // prompts.
  std::string Continue(size_t begin, size_t end) {
    if (begin == end) return "";
    const std::vector<Generated> results = GenerateAfter(begin, end);
    std::string lines;
    for (size_t i = begin; i < end; ++i) {
      const Generated& result = results[i - begin];
      const std::string text = TextOf(prompts_[i], result);
      lines += recipe_.run.prompts.empty() ? TextForTerminal(prompts_[i].text + text) + "\n"
                                           : JsonLine(i, prompts_[i], text, result);
    }
    return lines;
  }

 private:
  std::vector<Generated> GenerateAfter(size_t begin, size_t end) {
    const RunConfig& run = recipe_.run;
    std::vector<Prompt> given;
    for (size_t i = begin; i < end; ++i) {
      // Different prompts draw different numbers.
      const std::vector<int64_t>& tokens = prompts_[i].tokens;
      const uint32_t digest = Crc32(tokens.data(), tokens.size() * sizeof(int64_t));
      given.push_back({tokens, MixSeed({run.seed, digest, prompts_[i].repetition})});
    }
    NextLogits next_logits(
        [this](const at::Tensor& tokens) {
          return training_model_.WholeOutput(training_model_.Forward(tokens));
        },
        {.n_positions = recipe_.model.needs().positions,
         .caching = plan_.caching,
         .capacity = plan_.capacity,
         .device = training_model_.replicas().device()});
    return Generate(next_logits, given,
                    {.max_new_tokens = run.max_new_tokens,
                     .temperature = run.temperature,
                     .top_k = run.top_k,
                     .top_p = run.top_p,
                     .end_tokens = codec_.end_tokens(),
                     .ends = [&](const std::vector<int64_t>& tokens, size_t first) {
                       return HasStopText(codec_, run.stop, tokens, first);
                     }});
  }

  // Returns the text after the prompt, without the token or stop text that ended it.
  std::string TextOf(const TextPrompt& prompt, const Generated& generated) const {
    std::vector<int64_t> tokens = prompt.tokens;
    tokens.insert(tokens.end(), generated.tokens.begin(), generated.tokens.end());
    const bool has_end = std::ranges::count(codec_.end_tokens(), tokens.back()) > 0;
    if (has_end && generated.ended) tokens.pop_back();
    return CutAtStop(codec_.TextAfter(tokens, prompt.tokens.size(), /*skip_special=*/true),
                     recipe_.run.stop);
  }

  TrainingModel& training_model_;
  const Recipe& recipe_;
  const TextCodec& codec_;
  const std::vector<TextPrompt>& prompts_;
  const Plan plan_;
};

}  // namespace

TextCodec CodecOf(const Recipe& recipe) {
  const std::string& tokenizer = recipe.run.tokenizer;
  if (!tokenizer.empty()) return TextCodec(tokenizer);
  if (recipe.data.type == DataConfig::Type::kText) return TextCodec();
  const std::string& weights = recipe.run.init_weights;
  std::error_code error;
  if (!weights.empty() && std::filesystem::exists(weights + "/tokenizer.json", error)) {
    return TextCodec(weights);
  }
  RefuseInput(
      "there is no tokenizer for the texts; give --tokenizer with a folder that has "
      "tokenizer.json" +
      (weights.empty() ? "" : ", which " + weights + " has not"));
}

std::vector<TextPrompt> PromptsOf(const Recipe& recipe, const TextCodec& codec) {
  const DataNeeds needs = recipe.model.needs();
  if (!recipe.run.prompts.empty()) {
    return ReadPrompts(recipe.run.prompts, codec, needs.vocabulary, needs.positions);
  }
  return {MakePrompt(recipe.run.prompt, codec, needs.vocabulary, needs.positions, "--prompt")};
}

void ContinuePrompts(TrainingModel& training_model, const Recipe& recipe, const TextCodec& codec,
                     const std::vector<TextPrompt>& prompts, const ProcessGroup& group) {
  // A file that cannot be created should be reported before any work is done, so the writer is
  // created first.
  std::optional<PredictionWriter> writer;
  if (group.rank() == 0) writer.emplace(recipe.run.predictions);
  const Plan plan = MakePlan(training_model, recipe, prompts, group);
  PromptRun run(training_model, recipe, codec, prompts, plan);
  // If a forward pass is collective, every rank generates all texts; otherwise the ranks divide the
  // texts.
  const bool together = training_model.core().ForwardIsCollective();
  const auto rows = static_cast<size_t>(plan.rows);
  const size_t workers = together ? 1 : static_cast<size_t>(group.world_size());
  const size_t worker = together ? 0 : static_cast<size_t>(group.rank());
  // Each round continues the next prompts in the order of the file, so its lines can be written at
  // once.
  for (size_t first = 0; first < prompts.size(); first += workers * rows) {
    const size_t begin = std::min(first + worker * rows, prompts.size());
    const std::string own = run.Continue(begin, std::min(begin + rows, prompts.size()));
    const std::vector<std::string> all =
        together ? std::vector<std::string>{own} : GatherTexts(group, own);
    if (!writer) continue;
    for (const std::string& lines : all) writer->Write(lines);
  }
  if (!writer) return;
  writer->Finish();
  const std::string& file = recipe.run.predictions;
  if (file.empty()) return;
  PrintError(
      (recipe.run.prompts.empty() ? "the text is written to " : "the texts are written to ") +
      file);
}

}  // namespace dslaunch
