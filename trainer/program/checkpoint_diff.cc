#include "trainer/program/checkpoint_diff.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/text/sanitize.h"
#include "trainer/base/byte_progress.h"
#include "trainer/base/format.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/copy_checkpoint.h"
#include "trainer/checkpoint/tensor_blocks.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/program/checkpoint_source.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

// The number of elements that are compared at a time. Five copies of them are in memory.
constexpr int64_t kCompared = int64_t{1} << 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The kinds of tensors, each of which a checkpoint may lack as a whole.
enum class Group { kModel, kOptimizer, kRanks };

Group GroupOf(const TensorRecord& tensor) {
  if (IsOfModel(tensor)) return Group::kModel;
  return IsOfOptimizer(tensor.name) ? Group::kOptimizer : Group::kRanks;
}

struct Difference {
  std::string name;
  const TensorRecord* a = nullptr;  // null if the first checkpoint lacks the tensor
  const TensorRecord* b = nullptr;
  // The largest difference; nullopt if the values are not compared or are not numbers.
  std::optional<LargestDifference> values;
};

// One of the two checkpoints that are compared. The constructor throws if it is incomplete.
class Side {
 public:
  explicit Side(const std::string& path) : source_(OpenSource(path)), stored_(source_.checkpoint) {
    const std::string problem = ProblemOf(source_);
    if (!problem.empty()) RefuseInput(path + " is incomplete: " + problem);
    for (const TensorRecord& tensor : source_.checkpoint.manifest.tensors) {
      tensors_.emplace(tensor.name, &tensor);
    }
    if (!source_.foreign) return;
    for (const auto& [alias, name] : source_.foreign->aliases) {
      if (const auto found = tensors_.find(name); found != tensors_.end()) {
        aliases_.emplace(alias, found->second);
      }
    }
  }
  Side(const Side&) = delete;

  const std::map<std::string, const TensorRecord*>& tensors() const { return tensors_; }
  bool Has(Group group) const {
    return std::ranges::any_of(tensors_,
                               [&](const auto& item) { return GroupOf(*item.second) == group; });
  }
  // Returns the tensor with this name or alias; null if the checkpoint has no such tensor.
  const TensorRecord* Find(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
    const auto alias = aliases_.find(name);
    return alias == aliases_.end() ? nullptr : alias->second;
  }
  uint64_t bytes() const { return TensorBytesOf(source_.checkpoint); }
  const std::string& path() const { return source_.path; }

  void Read(const TensorRecord& tensor, int64_t start, int64_t stop, std::vector<char>& bytes) {
    ReadBlock(stored_, tensor, start, stop, bytes);
  }

 private:
  CheckpointSource source_;
  StoredTensors stored_;
  std::map<std::string, const TensorRecord*> tensors_, aliases_;
};

// Returns the differences between the tensors of this name; nullopt if they are equal.
std::optional<Difference> Compare(Side& a, Side& b, const std::string& name,
                                  ByteProgress& progress) {
  const TensorRecord* of_a = a.Find(name);
  const TensorRecord* of_b = b.Find(name);
  Difference difference = {name, of_a, of_b, std::nullopt};
  if (of_a == nullptr || of_b == nullptr || of_a->shape != of_b->shape) return difference;
  const auto type_a = ScalarTypeOf(of_a->dtype), type_b = ScalarTypeOf(of_b->dtype);
  const bool same_dtype = of_a->dtype == of_b->dtype;
  if (!same_dtype && !(type_a && type_b)) return difference;
  bool is_equal = same_dtype;
  LargestDifference largest;
  std::vector<char> bytes_a, bytes_b;
  ForEachBlock(
      NumElements(of_a->shape).value(),
      [&](int64_t start, int64_t stop) {
        a.Read(*of_a, start, stop, bytes_a);
        b.Read(*of_b, start, stop, bytes_b);
        progress.Add(bytes_a.size());
        if (same_dtype && bytes_a == bytes_b) return;
        if (!type_a) {
          is_equal = false;
          return;
        }
        const LargestDifference block =
            DifferenceOf(at::from_blob(bytes_a.data(), {stop - start}, *type_a),
                         at::from_blob(bytes_b.data(), {stop - start}, *type_b));
        largest.absolute = std::max(largest.absolute, block.absolute);
        largest.relative = std::max(largest.relative, block.relative);
      },
      kCompared);
  if (type_a) difference.values = largest;
  return is_equal && largest.absolute == 0 ? std::nullopt : std::optional(difference);
}

// Returns the sorted names of the tensors to compare. Groups that one of the checkpoints lacks are
// omitted.
std::vector<std::string> NamesOf(const Side& a, const Side& b) {
  std::vector<std::string> names;
  for (const Side* side : {&a, &b}) {
    const Side& other = side == &a ? b : a;
    for (const auto& [name, tensor] : side->tensors()) {
      if (other.Has(GroupOf(*tensor))) names.push_back(name);
    }
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string Described(const TensorRecord& tensor) {
  return DescribedTensor(tensor.dtype, tensor.shape);
}

std::string TextOf(const Difference& difference, const Side& a, const Side& b) {
  if (difference.b == nullptr) return "only in " + a.path() + ", " + Described(*difference.a);
  if (difference.a == nullptr) return "only in " + b.path() + ", " + Described(*difference.b);
  std::string text = Described(*difference.a);
  if (const std::string other = Described(*difference.b); other != text) text += " and " + other;
  if (!difference.values)
    return text + (difference.a->shape == difference.b->shape ? ", differs" : "");
  return text + Format(", largest difference %.3g, relative %.3g", difference.values->absolute,
                       difference.values->relative);
}

Json JsonOf(const TensorRecord* tensor) {
  if (tensor == nullptr) return Json();
  return {{"dtype", tensor->dtype}, {"shape", tensor->shape}};
}

std::string JsonText(const std::vector<Difference>& differences, size_t compared) {
  Json list = Json::array();
  for (const Difference& one : differences) {
    const auto number = [&](double LargestDifference::*member) {
      if (!one.values || !std::isfinite((*one.values).*member)) return Json();
      return Json((*one.values).*member);
    };
    list.push_back({{"name", one.name},
                    {"a", JsonOf(one.a)},
                    {"b", JsonOf(one.b)},
                    {"absolute", number(&LargestDifference::absolute)},
                    {"relative", number(&LargestDifference::relative)}});
  }
  const Json json = {
      {"equal", differences.empty()}, {"compared", compared}, {"differences", std::move(list)}};
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

// Prints the kinds of state that only one of the checkpoints has.
void PrintLeftOut(const Side& a, const Side& b) {
  const std::pair<Group, const char*> groups[] = {{Group::kModel, "weights"},
                                                  {Group::kOptimizer, "optimizer state"}};
  for (const auto& [group, name] : groups) {
    if (a.Has(group) == b.Has(group)) continue;
    const Side& with = a.Has(group) ? a : b;
    const Side& without = a.Has(group) ? b : a;
    PrintLine(SanitizeForTerminal("not compared: " + with.path() + " has " + name + ", " +
                                  without.path() + " has none"));
  }
}

}  // namespace

LargestDifference DifferenceOf(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return {};
  const at::Tensor of_a = a.to(at::kDouble), of_b = b.to(at::kDouble);
  const at::Tensor equal = (of_a == of_b).logical_or_(of_a.isnan().logical_and_(of_b.isnan()));
  at::Tensor absolute = (of_a - of_b).abs_().nan_to_num_(kInfinity, kInfinity);
  absolute.masked_fill_(equal, 0);
  at::Tensor relative = absolute / at::maximum(of_a.abs(), of_b.abs());
  relative.nan_to_num_(kInfinity, kInfinity).masked_fill_(equal, 0);
  return {absolute.max().item<double>(), relative.max().item<double>()};
}

bool PrintDifferences(const std::string& a_path, const std::string& b_path, bool json) {
  Side a(a_path), b(b_path);
  const std::vector<std::string> names = NamesOf(a, b);
  if (names.empty()) RefuseInput(a_path + " and " + b_path + " have no tensors to compare");
  std::vector<Difference> differences;
  {
    ByteProgress progress("compared: ", a.bytes());
    for (const std::string& name : names) {
      const std::optional<Difference> difference = Compare(a, b, name, progress);
      if (difference) differences.push_back(*difference);
    }
  }
  if (json) {
    PrintText(JsonText(differences, names.size()));
    return !differences.empty();
  }
  for (const Difference& one : differences) {
    PrintLine(SanitizeForTerminal(one.name + ": " + TextOf(one, a, b)));
  }
  PrintLeftOut(a, b);
  PrintLine(differences.empty() ? "equal: " + std::to_string(names.size()) + " tensors"
                                : std::to_string(differences.size()) + " of " +
                                      std::to_string(names.size()) + " tensors differ");
  return !differences.empty();
}

}  // namespace dslaunch
