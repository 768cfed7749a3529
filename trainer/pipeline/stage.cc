#include "trainer/pipeline/stage.h"

#include <map>
#include <set>
#include <utility>

#include "trainer/base/seed.h"
#include "trainer/base/train_error.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/pipeline/layer_run.h"
#include "trainer/pipeline/stage_cut.h"

namespace dslaunch {
namespace {

using torch::nn::Module;

constexpr uint64_t kSeedLayersBase = 1234;  // default of `seed_layers` in DeepSpeed

// Returns, for each layer, its owner: the first layer with the same key, under whose index the
// shared module is registered. Throws if tied layers have different types.
std::vector<size_t> Owners(const std::vector<PipelineLayer>& layers) {
  std::vector<size_t> owners;
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string& key = layers[i].tie_key;
    const size_t owner = key.empty() ? i : first.try_emplace(key, i).first->second;
    if (layers[owner].type != layers[i].type) {
      RefuseInput(LayerText(owner, layers[owner].type) + " and " + LayerText(i, layers[i].type) +
                  " are tied by the key \"" + key +
                  "\" but are of different types; give each type a key of its own");
    }
    owners.push_back(owner);
  }
  return owners;
}

std::shared_ptr<Module> Build(const PipelineLayer& layer, const std::string& where) {
  try {
    std::shared_ptr<Module> module = layer.build();
    if (!module) RefuseInput("its constructor returns no module");
    return module;
  } catch (...) {
    RethrowFrom(where);
  }
}

double CountParameters(const Module& module) {
  double elements = 0;
  for (const NamedTensor& item : Unique(module.named_parameters())) {
    elements += static_cast<double>(item.tensor.numel());
  }
  return elements;
}

double CountWithoutMemory(const PipelineLayer& layer, size_t index) {
  if (!layer.build) return 0;
  const std::string where = LayerText(index, layer.type) +
                            " cannot be counted for partition parameters (uniform and type:REGEX "
                            "count nothing)";
  std::shared_ptr<Module> module;
  const auto construct = [&] { module = layer.build(); };
  try {
    const InitRecording recording = DeferInit(/*seed=*/0, construct);
    return module ? CountParameters(*module) : 0;
  } catch (...) {
    RethrowFrom(where);
  }
}

std::vector<LayerInfo> InfoOf(const std::vector<PipelineLayer>& layers, bool count) {
  std::vector<LayerInfo> info;
  for (size_t i = 0; i < layers.size(); ++i) {
    info.push_back({.name = LayerText(i, layers[i].type),
                    .type = layers[i].type,
                    .parameters = count ? CountWithoutMemory(layers[i], i) : 0});
  }
  return info;
}

// Returns the number of parameters of each part. A weight that occurs twice in a part counts once.
std::vector<double> CountParts(const StageCut& cut, const std::vector<LayerInfo>& info,
                               const std::vector<size_t>& owners) {
  std::vector<double> counts;
  for (size_t part = 0; part < cut.parts(); ++part) {
    std::set<size_t> counted;
    double count = 0;
    const auto [begin, end] = cut.Part(part);
    for (size_t i = begin; i < end; ++i) {
      if (counted.insert(owners[i]).second) count += info[i].parameters;
    }
    counts.push_back(count);
  }
  return counts;
}

// Builds the modules of the stage's layers, by owner, in the order of the owners.
std::map<size_t, std::shared_ptr<Module>> BuildOwn(const std::vector<PipelineLayer>& layers,
                                                   const std::vector<size_t>& owners,
                                                   const StageCut& cut, int stage, bool seed_layers,
                                                   BorrowedGenerator& generator) {
  std::map<size_t, std::shared_ptr<Module>> built;
  for (const size_t i : cut.LayersOf(stage)) {
    const size_t owner = owners[i];
    if (!layers[owner].build || built.contains(owner)) continue;
    generator.Seed(seed_layers ? kSeedLayersBase + owner : MixSeed({generator.seed(), owner}));
    built[owner] = Build(layers[owner], StageLayerText(stage, owner, layers[owner].type));
  }
  return built;
}

void FindTied(const std::map<size_t, std::shared_ptr<Module>>& built,
              const std::vector<size_t>& owners, const StageCut& cut, StageParts& parts) {
  for (const auto& [owner, module] : built) {
    std::set<int> stages;
    for (size_t i = owner; i < owners.size(); ++i) {
      if (owners[i] == owner) stages.insert(cut.StageOf(i));
    }
    if (stages.size() == 1) continue;
    const auto add = [&](const std::vector<NamedTensor>& items, std::vector<TiedTensor>& tied) {
      for (const NamedTensor& item : items) {
        tied.push_back({std::to_string(owner) + "." + item.name, {stages.begin(), stages.end()}});
      }
    };
    add(Unique(module->named_parameters()), parts.cut.tied);
    add(Unique(module->named_buffers()), parts.cut.tied_buffers);
  }
}

}  // namespace

StageParts BuildStage(const PipelineModule& module, const PipelineConfig& config, int stage,
                      const std::vector<double>& costs) {
  const std::vector<PipelineLayer>& layers = module.layers;
  const bool count = config.partition == "parameters" || config.partition == "best";
  const std::vector<size_t> owners = Owners(layers);
  BorrowedGenerator generator;
  const std::vector<LayerInfo> info = InfoOf(layers, count);
  const StageCut cut(info, costs, config.stages, config.virtual_stages, config.partition);
  const auto built = BuildOwn(layers, owners, cut, stage, config.seed_layers, generator);

  StageParts parts;
  parts.module = std::make_shared<Module>();
  for (const auto& [owner, own] : built) parts.module->register_module(std::to_string(owner), own);
  for (size_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    std::vector<StageLayer>& own = parts.chunks.emplace_back();
    const auto [begin, end] = cut.Chunk(stage, chunk);
    for (size_t i = begin; i < end; ++i) {
      const auto found = built.find(owners[i]);
      own.push_back({i, LayerText(i, layers[i].type),
                     ForwardOf(layers[i], found == built.end() ? nullptr : found->second,
                               StageLayerText(stage, i, layers[i].type))});
    }
  }
  FindTied(built, owners, cut, parts);
  parts.parts = cut.PartTexts(count ? CountParts(cut, info, owners) : std::vector<double>());
  return parts;
}

}  // namespace dslaunch
