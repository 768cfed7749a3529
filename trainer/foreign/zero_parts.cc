#include "trainer/foreign/zero_parts.h"

#include <algorithm>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

// Limits the elements of a group, so that sums of two counts fit into int64_t.
constexpr int64_t kMaxElements = int64_t{1} << 60;

int64_t Elements(const ArchivedTensor& tensor) { return NumElements(tensor.shape).value(); }

int64_t CeilDivide(int64_t number, int64_t divisor) {
  return number / divisor + (number % divisor != 0 ? 1 : 0);
}

// Returns the sum of two counts of elements. Throws if the sum reaches kMaxElements; `name`, for
// the message, is the parameter with the second count.
int64_t Sum(int64_t a, int64_t b, const std::string& name) {
  if (b >= kMaxElements - a) {
    RefuseInput(Quoted(name) + " would give its group 2^60 elements or more");
  }
  return a + b;
}

// Adds the frozen parameters from the model files of the ranks.
void AddFrozen(const DeepSpeedModel& model, const DeepSpeedFiles& files, int64_t world_size,
               ForeignCheckpoint* plan) {
  if (model.frozen.empty()) return;
  ZeroParts parts({model.frozen});
  std::set<std::string> unread;
  for (const auto& [rank, name] : files.models) {
    if (rank >= world_size) break;
    const TorchArchive archive(plan->checkpoint.folder + "/" + name);
    const ArchiveField fragments = ArchiveField(archive).At("frozen_param_fragments");
    for (const NamedShape& parameter : model.frozen) {
      const ArchiveField field = fragments.At(parameter.name);
      parts.Add(CutEachParameter({parameter}, rank, world_size),
                FlatTensorsOf(field, std::nullopt, &unread), field);
    }
  }
  parts.Finish(!RanksWithout(files.models, world_size).empty(), plan);
}

}  // namespace

RankCut CutGroup(const std::vector<NamedShape>& parameters, const std::vector<int64_t>& paddings,
                 int64_t rank, int64_t world_size) {
  int64_t total = 0;
  std::vector<int64_t> starts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    starts.push_back(total);
    total = Sum(total, NumElements(parameters[i].shape).value(), parameters[i].name);
    if (i < paddings.size()) total = Sum(total, paddings[i], parameters[i].name);
  }
  RankCut cut;
  cut.whole = 2 * CeilDivide(total, 2 * world_size);
  const int64_t begin = std::min(total, rank * cut.whole);
  const int64_t end = std::min(total, begin + cut.whole);
  cut.used = end - begin;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t first = std::max(begin, starts[i]);
    const int64_t last = std::min(end, starts[i] + NumElements(parameters[i].shape).value());
    if (first < last) cut.fragments.push_back({parameters[i].name, first - begin, last - first});
  }
  return cut;
}

RankCut CutEachParameter(const std::vector<NamedShape>& parameters, int64_t rank,
                         int64_t world_size) {
  RankCut cut;
  for (const NamedShape& parameter : parameters) {
    const int64_t elements = NumElements(parameter.shape).value();
    const int64_t offset = cut.whole;
    const int64_t part = CeilDivide(elements, world_size);
    cut.whole = Sum(offset, part, parameter.name);
    const int64_t mine = std::clamp<int64_t>(elements - rank * part, 0, part);
    if (mine > 0) cut.fragments.push_back({parameter.name, offset, mine});
  }
  cut.used = cut.whole;
  return cut;
}

FlatTensors FlatTensorsOf(const ArchiveField& weights, const std::optional<ArchiveField>& state,
                          std::set<std::string>* unread) {
  FlatTensors flat;
  const ArchivedTensor tensor = weights.Tensor();
  if (tensor.shape.size() != 1 || !tensor.stride.empty()) weights.Fail("is not a flat tensor");
  flat[""] = tensor;
  if (!state) return flat;
  for (const auto& [key, field] : state->Entries()) {
    auto part = field.FindTensor();
    if (!part || key == "step") continue;
    if (part->shape.size() != 1 || !part->stride.empty() || Elements(*part) < Elements(tensor)) {
      unread->insert(key);
    } else {
      flat[key] = *std::move(part);
    }
  }
  return flat;
}

ZeroParts::ZeroParts(const std::vector<std::vector<NamedShape>>& groups) {
  for (const auto& group : groups) {
    for (const NamedShape& parameter : group) {
      if (parts_.try_emplace(parameter.name).second) parameters_.push_back(parameter);
    }
  }
}

void ZeroParts::Add(const RankCut& cut, const FlatTensors& flat, const ArchiveField& group) {
  const int64_t found = Elements(flat.at(""));
  if (found != cut.used && found != cut.whole) {
    group.Fail("has " + std::to_string(found) + " elements, not the " + std::to_string(cut.used) +
               " of the rank's parts of parameters");
  }
  for (const Fragment& fragment : cut.fragments) {
    auto& parts = parts_.at(fragment.name);
    for (const auto& [key, tensor] : flat) AddPiece(fragment, tensor, group, &parts[key]);
  }
}

void ZeroParts::AddPiece(const Fragment& fragment, const ArchivedTensor& tensor,
                         const ArchiveField& group, Part* part) const {
  if (part->dtype.empty()) part->dtype = tensor.dtype;
  if (part->dtype != tensor.dtype) {
    group.Fail("has " + tensor.dtype + " numbers of " + Quoted(fragment.name) +
               ", another rank has " + part->dtype);
  }
  const size_t bytes = DtypeBytes(tensor.dtype).value();
  part->pieces.push_back({group.archive().path(),
                          tensor.begin + static_cast<uint64_t>(fragment.start) * bytes,
                          fragment.elements});
  part->elements += fragment.elements;
}

std::set<std::string> ZeroParts::Finish(bool missing, ForeignCheckpoint* plan) const {
  std::set<std::string> names;
  for (const NamedShape& parameter : parameters_) {
    const int64_t elements = NumElements(parameter.shape).value();
    const auto& parts = parts_.at(parameter.name);
    names.insert(parameter.name);
    const auto weights = parts.find("");
    if (weights == parts.end() && elements == 0) {
      AddPieces(parameter.name, "F32", parameter.shape, {}, plan);
    } else if (weights == parts.end() && !missing) {
      RefuseInput(plan->checkpoint.folder + ": no rank's file has elements of " +
                  Quoted(parameter.name));
    }
    for (const auto& [key, part] : parts) {
      if (part.elements == elements) {
        const std::string name = key.empty() ? parameter.name : NameOfState(key, parameter.name);
        AddPieces(name, part.dtype, parameter.shape, part.pieces, plan);
      } else if (!missing) {
        RefuseInput(plan->checkpoint.folder + ": the ranks' files have " +
                    std::to_string(part.elements) + " elements of " + Quoted(parameter.name) +
                    (key.empty() ? "" : " in " + Quoted(key)) + ", not " +
                    std::to_string(elements));
      }
    }
  }
  return names;
}

std::vector<int64_t> RanksWithout(const std::map<int64_t, std::string>& files, int64_t count) {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < count; ++rank) {
    if (!files.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void AddModelFilesOfStage3(const DeepSpeedModel& model, const DeepSpeedFiles& files,
                           int64_t world_size, ForeignCheckpoint* plan) {
  for (const int64_t rank : RanksWithout(files.models, world_size)) {
    plan->missing.push_back(DeepSpeedModelFile(rank));
  }
  for (const auto& [rank, name] : files.models) {
    if (rank < world_size) AddFile(name, plan);
  }
  AddFrozen(model, files, world_size, plan);
}

}  // namespace dslaunch
