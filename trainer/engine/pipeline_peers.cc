#include "trainer/engine/pipeline_peers.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "trainer/base/by_rank.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/engine/same_config.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

using nlohmann::json;

// Returns the parameters of this rank's stage as JSON, for other ranks of this program.
std::string DescribeParameters(const MeshGroups& ranks, const torch::nn::Module& module) {
  json parameters = json::array();
  for (const NamedTensor& item : Unique(module.named_parameters())) {
    const bool tied =
        std::ranges::find(ranks.tied(), item.name, &TiedGroup::name) != ranks.tied().end();
    parameters.push_back({item.name, item.tensor.dim(), item.tensor.requires_grad(), tied});
  }
  return json{ranks.place().stage, std::move(parameters)}.dump();
}

// How a stage holds a parameter.
struct Holder {
  int stage = 0;
  int64_t dims = 0;
  bool tied = false;
};

// Checks that the replicas of each stage have the same model. The other stages would wait for a
// stage that throws, so an error of one stage is thrown on the ranks of every stage.
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

// Returns a cut parameter of this rank as JSON, for the other ranks of the tensor axis.
json DescribeCut(const ParameterCut& cut, const at::Tensor& parameter) {
  const Shard& shard = cut.shard;
  return {cut.shape,   shard.offset, shard.row,   shard.pitch,
          shard.start, shard.stop,   cut.is_copy, parameter.numel()};
}

// Returns the error in the cuts of a parameter; "" if they are correct and cover the whole
// parameter. `parts` has the DescribeCut of each rank that cuts the parameter.
std::string CutProblem(const std::vector<json>& parts, size_t ranks) {
  if (parts.size() != ranks) return "is cut on some of them only";
  const auto shape = parts[0].at(0).get<std::vector<int64_t>>();
  std::vector<Shard> shards, copies;
  for (const json& part : parts) {
    if (part.at(0).get<std::vector<int64_t>>() != shape) return "has several whole shapes";
    const auto number = [&](size_t i) { return part.at(i).get<int64_t>(); };
    const Shard shard{number(1), number(2), number(3), number(4), number(5)};
    if (shard.elements() > number(7)) return "has a cut with more elements than the tensor";
    if (shard.elements() > 0) (part.at(6).get<bool>() ? copies : shards).push_back(shard);
  }
  const auto is_unknown = [&](const Shard& shard) {
    return std::ranges::find(shards, shard) == shards.end();
  };
  if (std::ranges::any_of(copies, is_unknown)) return "has a copy of no other part";
  std::ranges::sort(shards, {},
                    [](const Shard& shard) { return std::pair(shard.offset, shard.start); });
  ShardCoverage coverage(c10::multiply_integers(shape));
  for (const Shard& shard : shards) {
    if (!coverage.Add(shard)) return "has cuts that overlap or leave a hole";
  }
  return coverage.complete() ? "" : "is not covered by its cuts";
}

}  // namespace

// Checks the cuts of all parameters. Every rank gets the descriptions of all ranks by name, so that
// parameters that only some ranks have are found.
void CheckParts(const MeshGroups& ranks, const torch::nn::Module& module) {
  const std::map<std::string, ParameterCut>& cuts = ranks.cut().divided;
  json own = json::object();
  std::set<std::string> names;
  for (const NamedTensor& item : Unique(module.named_parameters())) {
    names.insert(item.name);
    const auto cut = cuts.find(item.name);
    own[item.name] = {cut == cuts.end() ? json() : DescribeCut(cut->second, item.tensor),
                      item.tensor.sizes().vec(), item.tensor.requires_grad()};
  }
  std::string unknown;
  for (const auto& [name, cut] : cuts) {
    if (!names.contains(name)) unknown = name;
  }
  // Descriptions of each parameter by name, one for each rank that has the parameter.
  std::map<std::string, std::vector<json>> parameters;
  const std::vector<std::string> texts =
      GatherTexts(*ranks.tensor(), json{std::move(own), unknown}.dump());
  for (const std::string& text : texts) {
    const json rank = json::parse(text);
    if (const auto name = rank.at(1).get<std::string>(); !name.empty()) {
      RefuseInput("the cuts name " + name + ", which is not a parameter of the model");
    }
    for (const auto& [name, item] : rank.at(0).items()) parameters[name].push_back(item);
  }
  for (const auto& [name, items] : parameters) {
    std::vector<json> parts;
    bool same = items.size() == texts.size();
    for (const json& item : items) {
      if (!item.at(0).is_null()) parts.push_back(item.at(0));
      same = same && item.at(2) == items[0].at(2) &&
             (!item.at(0).is_null() || item.at(1) == items[0].at(1));
    }
    const std::string problem = !same           ? "is not the same on all of them"
                                : parts.empty() ? ""
                                                : CutProblem(parts, texts.size());
    if (problem.empty()) continue;
    RefuseInput("the tensor-parallel " + RankList(ranks.tensor()->job_ranks()) +
                " do not hold the parts of one model: the parameter " + name + " " + problem);
  }
}

void CheckSameConfig(const ProcessGroup& world, const EngineConfig& config) {
  const std::string problem = ConfigDisagreement(GatherTexts(world, SharedSettings(config)));
  if (!problem.empty()) throw TrainError(ExitCode::kBadInput, problem);
}

std::vector<ParameterInfo> ParametersElsewhere(const MeshGroups& ranks,
                                               const torch::nn::Module& module) {
  CheckReplicas(ranks, module);
  const bool describes = ranks.data().rank() == 0 && ranks.place().part == 0;
  std::map<std::string, Holder> first;  // first stage that holds each parameter
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
