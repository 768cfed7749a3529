#include "trainer/foreign/deepspeed_whole.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/plan_tensors.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxWork = 1'000'000;  // limit on the number of states times the number of groups

// Counts the ways to assign candidates to groups. A state is the number of candidates considered
// and the number of parameters assigned in each group.
class Assignments {
 public:
  Assignments(const std::vector<Shapes>& groups, const Shapes& candidates)
      : groups_(groups), candidates_(candidates) {}

  std::optional<std::vector<std::vector<size_t>>> TheOnlyOne() {
    Advance();
    std::vector<size_t> state;
    for (const Shapes& group : groups_) state.push_back(group.size());
    // Follow the choices back from the last state, from the last candidate to the first.
    std::vector<std::vector<size_t>> chosen(groups_.size());
    for (size_t at = candidates_.size(); at > 0; --at) {
      const auto reached = ways_[at].find(state);
      if (reached == ways_[at].end() || reached->second.count != 1) return std::nullopt;
      const size_t group = reached->second.group;
      if (group == groups_.size()) continue;
      chosen[group].push_back(at - 1);
      --state[group];
    }
    if (!ways_[0].contains(state)) return std::nullopt;
    for (auto& indices : chosen) std::reverse(indices.begin(), indices.end());
    return chosen;
  }

 private:
  struct Way {
    int count = 0;     // number of paths to the state, at most 2
    size_t group = 0;  // group of the last candidate; groups_.size() if the candidate was skipped
  };
  using States = std::map<std::vector<size_t>, Way>;

  void Advance() {
    ways_.resize(candidates_.size() + 1);
    ways_[0][std::vector<size_t>(groups_.size())] = {1, groups_.size()};
    size_t open = 0;
    for (const Shapes& group : groups_) open += group.size();
    size_t work = 0;
    for (size_t at = 0; at < candidates_.size() && work < kMaxWork; ++at) {
      work += ways_[at].size() * (groups_.size() + 1);
      for (const auto& [state, way] : ways_[at]) {
        const size_t assigned = std::accumulate(state.begin(), state.end(), size_t{0});
        // Every parameter needs a candidate, so this one may be skipped only if enough candidates
        // remain.
        if (open - assigned < candidates_.size() - at) {
          Add(at + 1, state, {way.count, groups_.size()});
        }
        for (size_t group = 0; group < groups_.size(); ++group) {
          if (state[group] == groups_[group].size()) continue;
          if (groups_[group][state[group]] != candidates_[at]) continue;
          std::vector<size_t> next = state;
          ++next[group];
          Add(at + 1, next, {way.count, group});
        }
      }
    }
  }

  void Add(size_t at, const std::vector<size_t>& state, Way way) {
    Way& all = ways_[at][state];
    all.count = std::min(2, all.count + way.count);
    all.group = way.group;
  }

  const std::vector<Shapes>& groups_;
  const Shapes& candidates_;
  std::vector<States> ways_;
};

// A parameter as an optimizer stores it, which is without a name.
struct Numbered {
  std::optional<ArchiveField> weights;  // fp32 weights, if the model has 16-bit weights
  std::optional<ArchiveField> state;
  // The index of the parameter's first element, if weights and state are a group's flat tensors.
  uint64_t first = 0;
};

struct Group {
  std::vector<Numbered> parameters;
  Shapes shapes;
};

// Returns the shape of a parameter's weights or, without weights, of the largest tensor in its
// state; nullopt without tensors.
std::optional<std::vector<int64_t>> ShapeOf(const Numbered& parameter) {
  if (parameter.weights) return parameter.weights->Tensor().shape;
  std::optional<std::vector<int64_t>> shape;
  if (!parameter.state) return shape;
  for (const auto& [key, field] : parameter.state->Entries()) {
    const auto tensor = field.FindTensor();
    if (!tensor || key == "step") continue;
    if (!shape || NumElements(tensor->shape) > NumElements(*shape)) shape = tensor->shape;
  }
  return shape;
}

// Returns the groups of an optimizer that stores each parameter separately; nullopt if a
// parameter's shape cannot be determined.
std::optional<std::vector<Group>> GroupsOf(const ArchiveField& inner,
                                           const std::optional<ArchiveField>& weights) {
  std::vector<Group> groups;
  const auto state = inner.At("state");
  const auto weights_of_groups = weights ? weights->Items() : std::vector<ArchiveField>();
  for (const ArchiveField& fields : inner.At("param_groups").Items()) {
    Group group;
    std::vector<ArchiveField> of_group;
    if (weights) {
      if (groups.size() >= weights_of_groups.size()) weights->Fail("lacks a group");
      of_group = weights_of_groups[groups.size()].Items();
    }
    for (const ArchiveField& number : fields.At("params").Items()) {
      Numbered parameter;
      parameter.state = state.Find(number.Count());
      const size_t i = group.parameters.size();
      if (weights) {
        if (i >= of_group.size()) weights->Fail("lacks a parameter");
        parameter.weights = of_group[i];
      }
      const auto shape = ShapeOf(parameter);
      if (!shape) return std::nullopt;
      group.shapes.push_back(*shape);
      group.parameters.push_back(parameter);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// Returns the parameters of the model in the model's order: the tensors of the value "module" that
// are neither buffers nor aliases.
std::vector<NamedShape> CandidatesIn(const ArchiveField& root) {
  std::set<std::string> others;
  if (const auto names = root.Find("buffer_names")) {
    for (const ArchiveField& name : names->Items()) others.insert(name.Text());
  }
  std::set<std::pair<uint64_t, std::vector<int64_t>>> seen;
  std::vector<NamedShape> candidates;
  for (const auto& [name, field] : root.At("module").Entries()) {
    const auto tensor = field.FindTensor();
    if (!tensor || others.contains(name)) continue;
    if (tensor->bytes > 0 && !seen.emplace(tensor->begin, tensor->shape).second) continue;
    candidates.push_back({name, tensor->shape});
  }
  return candidates;
}

// Adds the tensors of one parameter: a part of the group's tensors, from numbered.first on, if the
// tensors are `flat`, otherwise the parameter's own tensors.
void AddParameter(const NamedShape& parameter, const Numbered& numbered, bool flat,
                  ForeignCheckpoint* plan) {
  const int64_t elements = NumElements(parameter.shape).value();
  const auto add = [&](const std::string& name, const ArchiveField& field) {
    const ArchivedTensor tensor = field.Tensor();
    if (!flat) {
      AddWhole(name, field.archive().path(), tensor, plan);
      return;
    }
    const uint64_t begin = tensor.begin + numbered.first * DtypeBytes(tensor.dtype).value();
    AddPieces(name, tensor.dtype, parameter.shape, {{field.archive().path(), begin, elements}},
              plan);
  };
  if (numbered.weights) add(parameter.name, *numbered.weights);
  if (!numbered.state) return;
  const auto whole = ShapeOf(numbered);
  for (const auto& [key, field] : numbered.state->Entries()) {
    const auto tensor = field.FindTensor();
    if (key == "step" || !tensor || tensor->shape != whole) continue;
    add(NameOfState(key, parameter.name), field);
  }
}

// Adds the only group of an optimizer with flat tensors. Returns false if the group lacks some of
// the model's parameters, because the order then does not determine the names.
bool AddFlatGroup(const ArchiveField& weights, const ArchiveField& inner,
                  const std::vector<NamedShape>& candidates, ForeignCheckpoint* plan) {
  const auto groups = weights.Items();
  if (groups.size() != 1) return false;
  const ArchivedTensor flat = groups[0].Tensor();
  uint64_t elements = 0;
  for (const NamedShape& parameter : candidates) {
    elements += static_cast<uint64_t>(NumElements(parameter.shape).value());
  }
  if (flat.shape.size() != 1 || !flat.stride.empty() ||
      elements != static_cast<uint64_t>(flat.shape[0])) {
    return false;
  }
  Numbered numbered{groups[0], inner.At("state").Find(0), 0};
  for (const NamedShape& parameter : candidates) {
    AddParameter(parameter, numbered, true, plan);
    numbered.first += static_cast<uint64_t>(NumElements(parameter.shape).value());
  }
  return true;
}

bool AddByShape(const std::vector<Group>& groups, const std::vector<NamedShape>& candidates,
                ForeignCheckpoint* plan, std::set<std::string>* with_weights) {
  std::vector<Shapes> shapes;
  for (const Group& group : groups) shapes.push_back(group.shapes);
  Shapes of_candidates;
  for (const NamedShape& candidate : candidates) of_candidates.push_back(candidate.shape);
  const auto assigned = AssignByShape(shapes, of_candidates);
  if (!assigned) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = 0; j < groups[i].parameters.size(); ++j) {
      const NamedShape& parameter = candidates[(*assigned)[i][j]];
      const Numbered& numbered = groups[i].parameters[j];
      AddParameter(parameter, numbered, false, plan);
      if (numbered.weights) with_weights->insert(parameter.name);
    }
  }
  return true;
}

}  // namespace

std::optional<std::vector<std::vector<size_t>>> AssignByShape(const std::vector<Shapes>& groups,
                                                              const Shapes& candidates) {
  return Assignments(groups, candidates).TheOnlyOne();
}

std::set<std::string> AddWholeOptimizer(const TorchArchive& archive, const DeepSpeedModel& model,
                                        ForeignCheckpoint* plan) {
  std::set<std::string> with_weights;
  const ArchiveField root(archive);
  plan->checkpoint.manifest.world_size = model.world_size;
  const auto optimizer = root.Find("optimizer");
  if (!optimizer) return with_weights;
  const auto wrapped = optimizer->Find("optimizer_state_dict");
  const ArchiveField inner = wrapped ? *wrapped : *optimizer;
  ReadParamGroups(inner.At("param_groups"), plan);
  ReadUpdates(inner.At("state").Find(0), inner.Find("param_groups"), model, plan);
  ReadLossScaler(*optimizer, model, plan);

  const auto candidates = CandidatesIn(root);
  bool added = false;
  if (const auto flat = optimizer->Find("fp32_groups_flat")) {
    added = AddFlatGroup(*flat, inner, candidates, plan);
    if (added) {
      for (const NamedShape& parameter : candidates) with_weights.insert(parameter.name);
    }
  } else if (const auto groups = GroupsOf(inner, optimizer->Find("fp32_groups"))) {
    added = AddByShape(*groups, candidates, plan, &with_weights);
  }
  if (!added) {
    plan->notes.push_back(
        "The optimizer's state is not read: without ZeRO, DeepSpeed saves it by number, and more "
        "than one assignment to the parameters fits.");
  }
  return with_weights;
}

}  // namespace dslaunch
