#include "trainer/foreign/zero_parts.h"

#include <algorithm>
#include <limits>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

int64_t Elements(const ArchivedTensor& tensor) { return NumElements(tensor.shape).value(); }

// Adds frozen parameters from the ranks' model files.
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
      int64_t flat_elements = 0;
      const auto cut = CutForRank({parameter}, rank, world_size, &flat_elements);
      parts.Add(cut, FlatTensorsOf(field, std::nullopt, &unread), field);
    }
  }
  parts.Finish(!RanksWithout(files.models, world_size).empty(), plan);
}

}  // namespace

std::vector<Fragment> CutForRank(const std::vector<NamedShape>& parameters, int64_t rank,
                                 int64_t world_size, int64_t* flat_elements) {
  std::vector<Fragment> fragments;
  int64_t offset = 0;
  for (const NamedShape& parameter : parameters) {
    const int64_t elements = NumElements(parameter.shape).value();
    const int64_t part = elements / world_size + (elements % world_size != 0 ? 1 : 0);
    if (part > std::numeric_limits<int64_t>::max() - offset) {
      RefuseInput(Quoted(parameter.name) + " makes its group larger than a file can be");
    }
    // The product would overflow only for a rank that has nothing.
    const int64_t before = part == 0 || rank > elements / part ? elements : rank * part;
    fragments.push_back({parameter.name, offset, std::clamp<int64_t>(elements - before, 0, part)});
    offset += part;
  }
  *flat_elements = offset;
  return fragments;
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

void ZeroParts::Add(const std::vector<Fragment>& fragments, const FlatTensors& flat,
                    const ArchiveField& group) {
  const int64_t limit = Elements(flat.at(""));
  for (const Fragment& fragment : fragments) {
    const auto parts = parts_.find(fragment.name);
    if (parts == parts_.end()) {
      group.Fail("has elements of " + Quoted(fragment.name) + ", which param_shapes lacks");
    }
    if (fragment.start > limit || fragment.elements > limit - fragment.start) {
      group.Fail("lacks elements of " + Quoted(fragment.name));
    }
    for (const auto& [key, tensor] : flat) {
      AddPiece(fragment, tensor, group, &parts->second[key]);
    }
  }
}

void ZeroParts::AddPiece(const Fragment& fragment, const ArchivedTensor& tensor,
                         const ArchiveField& group, Part* part) const {
  if (part->dtype.empty()) part->dtype = tensor.dtype;
  if (part->dtype != tensor.dtype) {
    group.Fail("has " + tensor.dtype + " numbers of " + Quoted(fragment.name) +
               ", another rank has " + part->dtype);
  }
  if (fragment.elements > std::numeric_limits<int64_t>::max() - part->elements) {
    group.Fail("has too many elements of " + Quoted(fragment.name));
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
    if (weights == parts.end() && !missing) {
      RefuseInput(plan->checkpoint.folder + ": no rank's file has elements of " +
                  Quoted(parameter.name));
    }
    for (const auto& [key, part] : parts) {
      if (part.elements == elements) {
        const std::string name =
            key.empty() ? parameter.name : "optimizer/" + key + "/" + parameter.name;
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
