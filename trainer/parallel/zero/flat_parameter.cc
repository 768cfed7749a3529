#include "trainer/parallel/zero/flat_parameter.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr int64_t kBucketBytes = 25 << 20;

// Returns "h.0.attn" for "h.0.attn.weight"; "" for a parameter of the model itself.
std::string ModuleOf(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

class Cutter {
 public:
  Cutter(const std::vector<ShardedParameter>& parameters, int64_t bucket_elements, int world_size)
      : parameters_(parameters), bucket_elements_(bucket_elements), world_size_(world_size) {}

  // Adds a parameter to a unit whose parameters stay whole.
  void AddPersistent(size_t index) {
    const ShardedParameter& parameter = parameters_[index];
    const auto fits = [&](const FlatParameter& unit) {
      return unit.persistent && SameKind(unit, parameter) &&
             unit.elements + parameter.elements <= bucket_elements_;
    };
    // Units must become complete in the order of their parameters, so only the last unit of this
    // kind may grow.
    const auto last = std::find_if(units_.rbegin(), units_.rend(), [&](const FlatParameter& unit) {
      return unit.persistent && SameKind(unit, parameter);
    });
    Add(last != units_.rend() && fits(*last) ? *last : NewUnit(parameter, true), index);
  }

  // Adds a parameter to the unit of its module.
  void AddReleased(size_t index) {
    const ShardedParameter& parameter = parameters_[index];
    const bool same =
        !units_.empty() && !units_.back().persistent && SameKind(units_.back(), parameter) &&
        ModuleOf(parameters_[units_.back().parameters[0]].name) == ModuleOf(parameter.name);
    Add(same ? units_.back() : NewUnit(parameter, false), index);
  }

  std::vector<FlatParameter> Finish() {
    for (FlatParameter& unit : units_) {
      const int64_t part = std::max<int64_t>(1, (unit.elements + world_size_ - 1) / world_size_);
      unit.shard_elements = (part + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
      const std::string& first = parameters_[unit.parameters[0]].name;
      const std::string module = ModuleOf(first);
      unit.name = unit.persistent || module.empty() ? first : module;
      if (unit.persistent && unit.parameters.size() > 1) unit.name += " ...";
    }
    // Gradients arrive in the reverse order of the parameters, so units are sorted into the order
    // in which they become complete.
    std::stable_sort(units_.begin(), units_.end(),
                     [](const FlatParameter& a, const FlatParameter& b) {
                       return a.parameters.back() > b.parameters.back();
                     });
    return std::move(units_);
  }

 private:
  bool SameKind(const FlatParameter& unit, const ShardedParameter& parameter) const {
    const ShardedParameter& first = parameters_[unit.parameters[0]];
    return unit.trained == parameter.trained && first.dtype == parameter.dtype && !first.alone &&
           !parameter.alone;
  }

  FlatParameter& NewUnit(const ShardedParameter& parameter, bool persistent) {
    FlatParameter& unit = units_.emplace_back();
    unit.trained = parameter.trained;
    unit.persistent = persistent;
    return unit;
  }

  void Add(FlatParameter& unit, size_t index) {
    unit.parameters.push_back(index);
    unit.offsets.push_back(unit.elements);
    unit.elements += parameters_[index].elements;
  }

  const std::vector<ShardedParameter>& parameters_;
  const int64_t bucket_elements_;
  const int world_size_;
  std::vector<FlatParameter> units_;
};

}  // namespace

std::vector<FlatParameter> CutIntoUnits(const std::vector<ShardedParameter>& parameters,
                                        const ZeroConfig& zero, int64_t bucket_elements,
                                        int world_size) {
  Cutter cutter(parameters, bucket_elements, world_size);
  int64_t kept = 0;  // number of elements in small parameters that stay whole at stage 3
  for (size_t i = parameters.size(); i-- > 0;) {
    const ShardedParameter& parameter = parameters[i];
    if (zero.stage < 3) {
      if (parameter.trained) cutter.AddPersistent(i);
      continue;
    }
    const bool small = parameter.elements < zero.param_persistence_threshold &&
                       parameter.elements <= zero.model_persistence_threshold - kept;
    if (small) {
      kept += parameter.elements;
      if (parameter.trained) cutter.AddPersistent(i);
    } else {
      cutter.AddReleased(i);
    }
  }
  return cutter.Finish();
}

int64_t BucketElements(const ZeroConfig& zero, int64_t element_bytes) {
  return std::max<int64_t>(1, std::min({zero.reduce_bucket_size, zero.allgather_bucket_size,
                                        kBucketBytes / element_bytes}));
}

std::vector<ShardPiece> PiecesOf(const FlatParameter& unit, const std::vector<int64_t>& elements,
                                 int rank) {
  std::vector<int64_t> sizes;
  for (const size_t parameter : unit.parameters) sizes.push_back(elements[parameter]);
  std::vector<ShardPiece> pieces =
      PiecesInRange(sizes, rank * unit.shard_elements, (rank + 1) * unit.shard_elements);
  for (ShardPiece& piece : pieces) piece.tensor = unit.parameters[piece.tensor];
  return pieces;
}

}  // namespace dslaunch
