#include "trainer/pipeline/partition.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <regex>
#include <set>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

struct BestCut {
  double cost = kImpossible;
  std::vector<size_t> bounds;
};

// Returns the cut of `weights` into `parts` parts with the least total cost. The total combines
// `cost` of each part's weight by `add`, from the last part to the first. Among equal cuts, earlier
// parts are longer. A part that costs kImpossible is not allowed. Precondition: `cost` does not
// decrease as the weight grows.
BestCut Cut(const std::vector<double>& weights, size_t parts,
            const std::function<double(double)>& cost,
            const std::function<double(double, double)>& add) {
  const size_t layers = weights.size();
  // least[p][i] is the least cost of cutting the layers from i into p parts; ends[p][i] is the end
  // of the first of these parts.
  std::vector<std::vector<double>> least(parts + 1, std::vector<double>(layers + 1, kImpossible));
  std::vector<std::vector<size_t>> ends(parts + 1, std::vector<size_t>(layers + 1));
  least[0][layers] = 0;
  for (size_t p = 1; p <= parts; ++p) {
    for (size_t i = parts - p; i + p <= layers; ++i) {
      double weight = 0;
      for (size_t end = i + 1; end + (p - 1) <= layers; ++end) {
        weight += weights[end - 1];
        if (cost(weight) > least[p][i] || cost(weight) == kImpossible) break;
        const double all = add(cost(weight), least[p - 1][end]);
        if (all < kImpossible && all <= least[p][i]) {
          least[p][i] = all;
          ends[p][i] = end;
        }
      }
    }
  }
  BestCut best{.cost = least[parts][0], .bounds = {0}};
  for (size_t p = parts; p > 0; --p) best.bounds.push_back(ends[p][best.bounds.back()]);
  return best;
}

std::string Counted(size_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

[[noreturn]] void FailTooFew(size_t found, size_t parts, const std::string& found_what,
                             const std::string& way_out) {
  throw TrainError(
      ExitCode::kBadInput,
      "the model has " + found_what + ", too few for " + Counted(parts, "pipeline stage") +
          " (pipeline.stages times pipeline.virtual_stages); " +
          (found > 0 ? "ask for at most " + std::to_string(found) + " or " : "") + way_out);
}

std::vector<double> MatchWeights(const std::vector<LayerInfo>& layers, size_t parts,
                                 const std::string& pattern) {
  std::regex regex;
  try {
    regex = std::regex(pattern, std::regex::icase);
  } catch (const std::regex_error&) {
    throw TrainError(ExitCode::kBadInput,
                     "pipeline.partition is \"type:" + pattern +
                         "\", whose part after type: is not a valid regular expression");
  }
  std::vector<double> weights;
  std::set<std::string> types;
  for (const LayerInfo& layer : layers) {
    weights.push_back(std::regex_search(layer.type, regex) ? 1 : 0);
    types.insert(layer.type);
  }
  const size_t found = static_cast<size_t>(std::count(weights.begin(), weights.end(), 1));
  if (found < parts) {
    std::string known;
    for (const std::string& type : types) known += (known.empty() ? "" : ", ") + type;
    FailTooFew(found, parts,
               Counted(found, "layer") + " whose type pipeline.partition \"type:" + pattern +
                   "\" matches (known: " + known + ")",
               "change the expression");
  }
  return weights;
}

std::vector<double> WeightsOf(const std::vector<LayerInfo>& layers, size_t parts,
                              const std::string& method) {
  const std::string type_prefix = "type:";
  if (method.starts_with(type_prefix)) {
    return MatchWeights(layers, parts, method.substr(type_prefix.size()));
  }
  const auto each = [&](const std::function<double(const LayerInfo&)>& weight) {
    std::vector<double> weights;
    for (const LayerInfo& layer : layers) weights.push_back(weight(layer));
    return weights;
  };
  if (method == "uniform") return each([](const LayerInfo&) { return 1.0; });
  const bool costs_known = std::any_of(layers.begin(), layers.end(),
                                       [](const LayerInfo& layer) { return layer.cost > 0; });
  if (method == "profile" || (method == "best" && costs_known)) {
    return each([](const LayerInfo& layer) { return layer.cost; });
  }
  if (method == "parameters" || method == "best") {
    return each([](const LayerInfo& layer) { return layer.parameters; });
  }
  throw TrainError(ExitCode::kBadInput, "pipeline.partition is \"" + method +
                                            "\"; it must be best, parameters, uniform, profile "
                                            "or type:REGEX, as in type:block");
}

}  // namespace

std::vector<size_t> CutLayers(const std::vector<LayerInfo>& layers, size_t parts,
                              const std::string& method) {
  const std::vector<double> weights = WeightsOf(layers, parts, method);
  if (layers.size() < parts) {
    FailTooFew(layers.size(), parts, Counted(layers.size(), "layer"), "give it more layers");
  }
  const auto larger = [](double a, double b) { return std::max(a, b); };
  const double largest = Cut(weights, parts, std::identity(), larger).cost;
  // Among cuts with the same largest part, the sum of squares is least for the most even parts, so
  // it decides.
  const auto square = [largest](double weight) {
    return weight <= largest ? weight * weight : kImpossible;
  };
  return Cut(weights, parts, square, std::plus<>()).bounds;
}

}  // namespace dslaunch
