#include "trainer/engine/pipeline_peers.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/config/same_config.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {
namespace {

using nlohmann::json;

// A parameter or buffer as one stage has it.
struct Copy {
  int stage = 0;
  bool is_parameter = false;
  bool trained = false;
  int64_t dims = 0;
  bool tied = false;
  bool is_canonical = false;
};

// All of this stage's, for other ranks of this program.
std::string DescribeCopies(const EngineRanks& ranks, const torch::nn::Module& module) {
  json copies = json::array();
  for (const NamedTensor& item : Unique(module.named_parameters())) {
    const auto tied = std::ranges::find(ranks.tied, item.name, &TiedGroup::name);
    copies.push_back({item.name, /*is_parameter=*/true, item.tensor.requires_grad(),
                      item.tensor.dim(), tied != ranks.tied.end(),
                      tied != ranks.tied.end() && tied->is_canonical});
  }
  for (const NamedTensor& item : Unique(module.named_buffers())) {
    copies.push_back(
        {item.name, /*is_parameter=*/false, /*trained=*/false, item.tensor.dim(), false, false});
  }
  return json{ranks.stage, std::move(copies)}.dump();
}

std::map<std::string, std::vector<Copy>> CopiesByName(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<Copy>> copies;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    const json parsed = json::parse(text);
    for (const json& item : parsed[1]) {
      copies[item[0].get<std::string>()].push_back({.stage = parsed[0].get<int>(),
                                                    .is_parameter = item[1].get<bool>(),
                                                    .trained = item[2].get<bool>(),
                                                    .dims = item[3].get<int64_t>(),
                                                    .tied = item[4].get<bool>(),
                                                    .is_canonical = item[5].get<bool>()});
    }
  }
  return copies;
}

// The stage whose copy counts. What is not trained stays the same everywhere, so any will do.
int CountingStage(const std::string& name, const std::vector<Copy>& copies) {
  const Copy& first = *std::ranges::min_element(copies, {}, &Copy::stage);
  if (copies.size() == 1 || !first.trained) return first.stage;
  if (std::ranges::all_of(copies, &Copy::tied) &&
      std::ranges::count_if(copies, &Copy::is_canonical) == 1) {
    return std::ranges::find_if(copies, &Copy::is_canonical)->stage;
  }
  throw TrainError(ExitCode::kInternal,
                   "internal error: the stages " + std::to_string(copies[0].stage) + " and " +
                       std::to_string(copies[1].stage) + " of the pipeline both train " + name +
                       ", but their copies are not tied");
}

// What the replicas of one stage see is thrown on all stages, which would wait for them.
void CheckReplicas(const EngineRanks& ranks, const torch::nn::Module& module) {
  std::string failure;
  try {
    CheckSameModel(*ranks.replicas, TrainableParameters(module),
                   TensorsOf(Unique(module.named_buffers())), /*may_be_empty=*/true);
  } catch (const TrainError& error) {
    failure = FormatFailure(TrainError(
        error.code(), "pipeline stage " + std::to_string(ranks.stage) + ": " + error.what()));
  }
  ThrowFirstFailure(GatherTexts(*ranks.world, failure));
}

}  // namespace

void CheckSameConfig(const ProcessGroup& world, const EngineConfig& config) {
  const std::string problem = ConfigDisagreement(GatherTexts(world, SharedSettings(config)));
  if (!problem.empty()) throw TrainError(ExitCode::kBadInput, problem);
}

PipelinePeers ExchangePeerInfo(const EngineRanks& ranks, const torch::nn::Module& module) {
  CheckReplicas(ranks, module);
  // One rank of each stage speaks for it.
  const std::string own = ranks.replicas->rank() == 0 ? DescribeCopies(ranks, module) : "";
  PipelinePeers others;
  bool trains = false;
  for (const auto& [name, copies] : CopiesByName(GatherTexts(*ranks.world, own))) {
    const int counts = CountingStage(name, copies);
    trains |= copies[0].trained;
    const bool here = std::ranges::find(copies, ranks.stage, &Copy::stage) != copies.end();
    if (here && counts != ranks.stage) others.counted_elsewhere.insert(name);
    if (!here && copies[0].is_parameter) others.parameters.push_back({name, copies[0].dims});
  }
  if (!trains) {
    throw TrainError(ExitCode::kBadInput,
                     "no layer has a parameter that requires a gradient, so there is nothing to "
                     "train");
  }
  return others;
}

}  // namespace dslaunch
