#include "trainer/foreign/deepspeed_files.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr std::string_view kBf16 = "bf16_";
constexpr std::string_view kRank = "zero_pp_rank_";
constexpr std::string_view kTensorRank = "mp_rank_";
constexpr std::string_view kModel = "_model_states.pt";
constexpr std::string_view kOptimizer = "_optim_states.pt";

bool Skip(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

std::optional<int64_t> SkipNumber(std::string_view* text) {
  int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || number < 0 || number > 1'000'000) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(stop - text->data()));
  return number;
}

struct RankFile {
  int64_t rank = 0;
  int64_t tensor_rank = 0;
  bool bf16 = false;
  bool optimizer = false;
};

// Parses the name of a rank's file, such as "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt";
// nullopt for other names.
std::optional<RankFile> ParseRankFile(std::string_view name) {
  RankFile file;
  file.bf16 = Skip(kBf16, &name);
  if (!Skip(kRank, &name)) return std::nullopt;
  const auto rank = SkipNumber(&name);
  if (!rank || !Skip("_", &name) || !Skip(kTensorRank, &name)) return std::nullopt;
  const auto tensor_rank = SkipNumber(&name);
  if (!tensor_rank || (name != kModel && name != kOptimizer)) return std::nullopt;
  file.rank = *rank;
  file.tensor_rank = *tensor_rank;
  file.optimizer = name == kOptimizer;
  return file;
}

// Parses a name such as "mp_rank_00_model_states.pt". Returns the tensor-parallel rank; nullopt for
// other names.
std::optional<int64_t> ParseModelFile(std::string_view name) {
  if (!Skip(kTensorRank, &name)) return std::nullopt;
  const auto tensor_rank = SkipNumber(&name);
  return tensor_rank && name == kModel ? tensor_rank : std::nullopt;
}

}  // namespace

std::string DeepSpeedModelFile(int64_t rank) {
  return std::string(kRank) + std::to_string(rank) + "_mp_rank_00" + std::string(kModel);
}

std::string DeepSpeedOptimizerFile(int64_t rank, bool bf16) {
  return (bf16 ? std::string(kBf16) : "") + std::string(kRank) + std::to_string(rank) +
         "_mp_rank_00" + std::string(kOptimizer);
}

DeepSpeedFiles SortDeepSpeedFiles(const std::vector<std::string>& names,
                                  const std::string& folder) {
  DeepSpeedFiles files;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (const auto tensor_rank = ParseModelFile(name)) {
      (*tensor_rank == 0 ? files.model : files.tensor_parallel) = name;
    } else if (const auto file = ParseRankFile(name)) {
      auto& ranks = !file->optimizer ? files.models
                    : file->bf16     ? files.bf16_optimizer
                                     : files.optimizer;
      (file->tensor_rank == 0 ? ranks[file->rank] : files.tensor_parallel) = name;
    } else if (name.find("expert_") != std::string::npos || name.starts_with("expp_rank_")) {
      if (IsDeepSpeedFile(name)) RefuseInput(path + ": experts (MoE) of DeepSpeed are not read");
    } else if (name.starts_with("layer_") && IsDeepSpeedFile(name)) {
      RefuseInput(path +
                  ": DeepSpeed's pipeline saved it by layer numbers, not by names of parameters, "
                  "which is not read");
    }
  }
  return files;
}

bool IsDeepSpeedFile(const std::string& name) {
  return name.ends_with("model_states.pt") || name.ends_with(kOptimizer);
}

}  // namespace dslaunch
