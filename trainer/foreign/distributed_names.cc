#include "trainer/foreign/distributed_names.h"

#include <map>
#include <set>
#include <string_view>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/manifest.h"

namespace dslaunch {
namespace {

constexpr std::string_view kOptimizers[] = {"optim.state.", "optimizer.state."};
constexpr std::string_view kModels[] = {"model.", "app.model.", ""};
// Lists the keys at which programs save the step, in order of preference: torchtitan's key, then
// common keys.
constexpr std::string_view kSteps[] = {"train_state.step", "step", "global_step", "app.step"};

struct OptimizerKey {
  std::string parameter, kind;
};

std::optional<OptimizerKey> AsOptimizerKey(const std::string& key) {
  for (const std::string_view marker : kOptimizers) {
    const size_t at = key.find(marker);
    if (at == std::string::npos || (at > 0 && key[at - 1] != '.')) continue;
    const size_t begin = at + marker.size(), dot = key.rfind('.');
    if (dot <= begin) continue;
    return OptimizerKey{key.substr(begin, dot - begin), key.substr(dot + 1)};
  }
  return std::nullopt;
}

std::string Shown(const std::string& prefix) {
  return prefix.empty() ? "no prefix" : Quoted(prefix);
}

class Namer {
 public:
  Namer(const std::vector<DistributedKey>& keys, const std::string& source)
      : keys_(keys), source_(source) {
    result_.names.resize(keys.size());
  }

  DistributedNames Name(const std::string& prefix) {
    Sort();
    NameWeights(prefix.empty() ? FindPrefix() : prefix, !prefix.empty());
    NameOptimizerState();
    return std::move(result_);
  }

 private:
  // Divides the keys into the step, optimizer state and other tensors. Adds a note about values
  // that are not read.
  void Sort() {
    size_t best = std::size(kSteps);
    std::vector<size_t> values;
    for (size_t i = 0; i < keys_.size(); ++i) {
      size_t step = 0;
      while (step < std::size(kSteps) && keys_[i].key != kSteps[step]) ++step;
      if (step < best) {
        best = step;
        result_.step = i;
      }
      if (step < std::size(kSteps)) continue;
      if (!keys_[i].is_tensor) {
        values.push_back(i);
      } else if (const auto key = AsOptimizerKey(keys_[i].key)) {
        optimizer_.emplace(i, *key);
      } else {
        by_prefix_[OuterOf(i)].push_back(i);
      }
    }
    if (values.empty()) return;
    result_.notes.push_back(Count(values.size(), "value") + " that " +
                            (values.size() == 1 ? "is not a tensor was" : "are not tensors were") +
                            " not read, such as " + Truncate(keys_[values.front()].key));
  }

  std::string OuterOf(size_t i) const { return keys_[i].key.substr(0, keys_[i].outer_bytes); }

  std::string FindPrefix() const {
    for (const std::string_view model : kModels) {
      if (by_prefix_.contains(std::string(model))) return std::string(model);
    }
    if (by_prefix_.size() == 1) return by_prefix_.begin()->first;
    if (by_prefix_.empty()) {
      RefuseInput(source_ + ": has no weights" +
                  (optimizer_.empty() ? ""
                                      : ", only the optimizer's state; give the folder that has "
                                        "both"));
    }
    std::vector<std::string> prefixes;
    for (const auto& [prefix, tensors] : by_prefix_) {
      prefixes.push_back(Truncate(prefix) + " (" + Count(tensors.size(), "tensor") + ")");
    }
    RefuseInput(source_ + ": has tensors under " + std::to_string(by_prefix_.size()) +
                " names; choose the model's with --prefix: " + NameList(prefixes, ", "));
  }

  // Sets the names of the weights. If `is_given`, their keys begin with `prefix`; otherwise
  // `prefix` is the names of the nested dicts that contain them.
  void NameWeights(const std::string& prefix, bool is_given) {
    for (const auto& [outer, tensors] : by_prefix_) {
      size_t unread = 0;
      for (const size_t i : tensors) {
        const bool is_weight = is_given ? keys_[i].key.starts_with(prefix) : outer == prefix;
        if (is_weight) {
          result_.names[i] = keys_[i].key.substr(prefix.size());
          weights_.insert(result_.names[i]);
        } else {
          ++unread;
        }
      }
      if (unread > 0) {
        result_.notes.push_back(Count(unread, "tensor") + " with " + Shown(outer) +
                                (unread == 1 ? " was" : " were") + " not read");
      }
    }
    if (weights_.empty())
      RefuseInput(source_ + ": has no tensor with the prefix " + Quoted(prefix));
    if (!prefix.empty()) result_.notes.push_back("names are without " + Truncate(prefix));
  }

  void NameOptimizerState() {
    std::set<std::string> unknown;
    for (const auto& [i, key] : optimizer_) {
      if (!weights_.contains(key.parameter)) {
        unknown.insert(key.parameter);
      } else if (key.kind == "step") {
        result_.updates.push_back(i);
      } else {
        result_.names[i] = NameOfState(key.kind, key.parameter);
      }
    }
    if (unknown.empty()) return;
    result_.notes.push_back("the optimizer's state of " + Count(unknown.size(), "parameter") +
                            " that the model does not have was not read, such as " +
                            Truncate(*unknown.begin()));
  }

  const std::vector<DistributedKey>& keys_;
  const std::string& source_;
  std::map<size_t, OptimizerKey> optimizer_;  // keys of the optimizer's state by index in keys_
  // The tensors that are not optimizer state, keyed by the names of their outer dicts.
  std::map<std::string, std::vector<size_t>> by_prefix_;
  std::set<std::string> weights_;  // names that weights have in the manifest
  DistributedNames result_;
};

}  // namespace

DistributedNames NamesOf(const std::vector<DistributedKey>& keys, const std::string& prefix,
                         const std::string& source) {
  return Namer(keys, source).Name(prefix);
}

}  // namespace dslaunch
