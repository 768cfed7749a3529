#include "trainer/engine/pipeline_peers.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/config/same_config.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {
namespace {

using nlohmann::json;

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

// A stage that has a parameter.
struct Holder {
  int stage = 0;
  int64_t dims = 0;
  bool tied = false;
};

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
  std::map<std::string, Holder> first;  // first holder of each parameter
  std::set<std::string> here;
  bool trains = false;
  for (const std::string& text :
       GatherTexts(ranks.world(), describes ? DescribeParameters(ranks, module) : "")) {
    if (text.empty()) continue;
    const json parsed = json::parse(text);
    for (const json& item : parsed[1]) {
      const auto name = item[0].get<std::string>();
      const bool trained = item[2].get<bool>();
      const Holder own{parsed[0].get<int>(), item[1].get<int64_t>(), item[3].get<bool>()};
      const auto [other, is_first] = first.emplace(name, own);
      if (!is_first && trained && !(own.tied && other->second.tied)) {
        throw TrainError(ExitCode::kInternal,
                         "internal error: the stages " + std::to_string(other->second.stage) +
                             " and " + std::to_string(own.stage) + " of the pipeline both train " +
                             name + ", but their copies are not tied");
      }
      if (own.stage == ranks.place().stage) here.insert(name);
      trains |= trained;
    }
  }
  if (!trains) {
    throw TrainError(ExitCode::kBadInput,
                     "no layer has a parameter that requires a gradient, so there is nothing to "
                     "train");
  }
  std::vector<ParameterInfo> elsewhere;
  for (const auto& [name, holder] : first) {
    if (!here.contains(name)) elsewhere.push_back({name, holder.dims});
  }
  return elsewhere;
}

}  // namespace dslaunch
