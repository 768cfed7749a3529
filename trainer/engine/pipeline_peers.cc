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

// A parameter as one stage has it.
struct StageParameter {
  int stage = 0;
  int64_t dims = 0;
  bool trained = false;
  bool tied = false;
};

// The parameters of this rank's stage as JSON, for other ranks of this program.
std::string DescribeParameters(const MeshGroups& ranks, const torch::nn::Module& module) {
  json parameters = json::array();
  for (const NamedTensor& item : Unique(module.named_parameters())) {
    const bool tied =
        std::ranges::find(ranks.tied(), item.name, &TiedGroup::name) != ranks.tied().end();
    parameters.push_back({item.name, item.tensor.dim(), item.tensor.requires_grad(), tied});
  }
  return json{ranks.place().stage, std::move(parameters)}.dump();
}

std::map<std::string, std::vector<StageParameter>> ParametersByName(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<StageParameter>> parameters;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    const json parsed = json::parse(text);
    for (const json& item : parsed[1]) {
      parameters[item[0].get<std::string>()].push_back({.stage = parsed[0].get<int>(),
                                                        .dims = item[1].get<int64_t>(),
                                                        .trained = item[2].get<bool>(),
                                                        .tied = item[3].get<bool>()});
    }
  }
  return parameters;
}

void CheckTied(const std::string& name, const std::vector<StageParameter>& copies) {
  if (copies.size() == 1 || !copies[0].trained ||
      std::ranges::all_of(copies, &StageParameter::tied)) {
    return;
  }
  throw TrainError(ExitCode::kInternal,
                   "internal error: the stages " + std::to_string(copies[0].stage) + " and " +
                       std::to_string(copies[1].stage) + " of the pipeline both train " + name +
                       ", but their copies are not tied");
}

// An error that the replicas of one stage find is thrown on every stage, because the others would
// wait for them.
void CheckReplicas(const MeshGroups& ranks, const torch::nn::Module& module) {
  std::string failure;
  try {
    CheckSameModel(ranks.data(), TrainableParameters(module),
                   TensorsOf(Unique(module.named_buffers())), /*may_be_empty=*/true);
  } catch (const TrainError& error) {
    failure = FormatFailure(
        TrainError(error.code(),
                   "pipeline stage " + std::to_string(ranks.place().stage) + ": " + error.what()));
  }
  ThrowFirstFailure(GatherTexts(ranks.world(), failure));
}

}  // namespace

void CheckSameConfig(const ProcessGroup& world, const EngineConfig& config) {
  const std::string problem = ConfigDisagreement(GatherTexts(world, SharedSettings(config)));
  if (!problem.empty()) throw TrainError(ExitCode::kBadInput, problem);
}

std::vector<ParameterInfo> ParametersElsewhere(const MeshGroups& ranks,
                                               const torch::nn::Module& module) {
  CheckReplicas(ranks, module);
  const bool describes = ranks.data().rank() == 0 && ranks.place().part == 0;
  std::vector<ParameterInfo> elsewhere;
  bool trains = false;
  for (const auto& [name, copies] : ParametersByName(
           GatherTexts(ranks.world(), describes ? DescribeParameters(ranks, module) : ""))) {
    CheckTied(name, copies);
    trains |= copies[0].trained;
    const bool here =
        std::ranges::find(copies, ranks.place().stage, &StageParameter::stage) != copies.end();
    if (!here) elsewhere.push_back({name, copies[0].dims});
  }
  if (!trains) {
    throw TrainError(ExitCode::kBadInput,
                     "no layer has a parameter that requires a gradient, so there is nothing to "
                     "train");
  }
  return elsewhere;
}

}  // namespace dslaunch
