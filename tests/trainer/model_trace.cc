// Creates one model at a time, for the comparison with Python: reads JSON objects, one a line, and
// answers each with a JSON object on one line.
//
//   {"model": {"type": ..., sizes} | "config": config.json, "input_shape": [...], "seed": N,
//    "weights": PATH?, "export": FOLDER?, "gradients": FOLDER for the gradients' values?,
//    "tokens": [[...], ...] | "batch": N, "targets": [...]}
//
// Without tokens the inputs are at::rand({N, *input_shape}) with seed 1. The answer:
//
//   {"section": of a recipe, "state": {name: shape}, "sums": {name: sum of squares}, "logits":
//   [...] in evaluation mode,
//    "loss": of a forward pass in training mode, "gradients": {name: sum of squares},
//    "logits_after": like "logits", after the pass has updated the batch norms' averages}
//
// or {"error": the message for a user}.
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"
#include "trainer/config/model_family.h"
#include "trainer/config/recipe.h"
#include "trainer/families/make_model.h"
#include "trainer/weights/pretrained.h"

namespace dslaunch {
namespace {

using nlohmann::json;

std::vector<double> Flat(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

at::Tensor ToTensor(const json& rows) {
  const auto values = rows.get<std::vector<std::vector<int64_t>>>();
  std::vector<at::Tensor> tensors;
  for (const std::vector<int64_t>& row : values) tensors.push_back(at::tensor(row));
  return at::stack(tensors);
}

double SumOfSquares(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).square().sum().item<double>();
}

// Returns a recipe's section "model".
std::string SectionOf(const json& asked) {
  if (asked.contains("model")) return asked["model"].dump();
  return SectionOfConfigJson(asked.at("config").dump(), "config.json");
}

json Answer(const json& asked) {
  const auto input_shape = asked.at("input_shape").get<std::vector<int64_t>>();
  const ModelConfig config = ParseModelSection(SectionOf(asked), "trace");
  at::manual_seed(asked.at("seed"));
  const std::shared_ptr<Model> model = MakeModel(config, input_shape);
  if (asked.contains("weights")) InitWeights(*model, config, asked["weights"]);

  std::vector<NamedTensor> state;
  for (const auto& item : model->named_parameters()) state.push_back({item.key(), item.value()});
  for (const auto& item : model->named_buffers()) state.push_back({item.key(), item.value()});
  if (asked.contains("export")) ExportHuggingFace(state, config, asked["export"]);
  json answer;
  answer["section"] = config.family().Section(config);
  for (const NamedTensor& item : state) {
    answer["state"][item.name] = item.tensor.sizes().vec();
    answer["sums"][item.name] = SumOfSquares(item.tensor);
  }

  at::Tensor inputs;
  if (asked.contains("tokens")) {
    inputs = ToTensor(asked["tokens"]);
  } else {
    std::vector<int64_t> shape = input_shape;
    shape.insert(shape.begin(), asked.at("batch").get<int64_t>());
    at::manual_seed(1);
    inputs = at::rand(shape);
  }
  const auto logits = [&] {
    const at::NoGradGuard no_grad;
    model->eval();
    return Flat(model->forward(inputs));
  };
  answer["logits"] = logits();
  model->train();
  const at::Tensor targets = at::tensor(asked.at("targets").get<std::vector<int64_t>>());
  const at::Tensor loss = model->Loss(model->forward(inputs), targets);
  loss.backward();
  answer["loss"] = loss.item<double>();
  std::vector<NamedTensor> gradients;
  for (const auto& item : model->named_parameters()) {
    gradients.push_back({item.key(), item.value().grad()});
    answer["gradients"][item.key()] = SumOfSquares(item.value().grad());
  }
  if (asked.contains("gradients")) ExportHuggingFace(gradients, config, asked["gradients"]);
  answer["logits_after"] = logits();
  return answer;
}

}  // namespace
}  // namespace dslaunch

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << dslaunch::Answer(nlohmann::json::parse(line)).dump() << '\n';
    } catch (const dslaunch::TrainError& error) {
      std::cout << nlohmann::json{{"error", error.what()}}.dump() << '\n';
    }
  }
}
