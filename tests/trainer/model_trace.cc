// Creates one model at a time, for comparison with Python. Reads JSON objects, one per line, and
// answers each with a JSON object on one line.
//
//   {"model": {"type": ..., sizes} | "config": config.json, "input_shape": [...], "seed": N,
//    "weights": PATH?, "lora": section?, "export": FOLDER?, "gradients": FOLDER for the gradients'
//    values?, "documents": whether negative tokens, -1 - ID, begin documents?,
//    "tokens": [[...], ...] | "batch": N, "targets": [...]}
//
// Without tokens, the inputs are at::rand({N, *input_shape}) with seed 1. The answer:
//
//   {"section": of a recipe, "state": {name: shape}, "sums": {name: sum of squares}, "logits":
//   [...] in evaluation mode,
//    "loss": of a forward pass in training mode, "gradients": {name: sum of squares},
//    "logits_after": like "logits", after the pass has updated the batch norms' averages}
//
// or {"error": the message for a user}. With "parts": N, and optionally "sequence_parallel" and
// "recompute", each of N threads has a part of the model, and the answer is
//
//   {"logits": of the whole model, "loss", "problems": differences between ranks' tensors}
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "dslaunch/recompute.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/tensor_ranks.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/config/lora_config.h"
#include "trainer/config/model_family.h"
#include "trainer/config/recipe.h"
#include "trainer/families/make_model.h"
#include "trainer/nn/lora/lora.h"
#include "trainer/weights/adapter_files.h"
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

// Returns the section "model" of a recipe, from the request.
std::string SectionOf(const json& asked) {
  if (asked.contains("model")) return asked["model"].dump();
  return SectionOfConfigJson(asked.at("config").dump(), "config.json");
}

// Runs the passes of one of several ranks and returns the rank's answer.
json TrainPart(Model& part, const json& asked) {
  const at::Tensor inputs = ToTensor(asked["tokens"]);
  json answer;
  {
    const at::NoGradGuard no_grad;
    part.eval();
    answer["logits"] = Flat(part.WholeOutput(part.forward(inputs)));
  }
  part.train();
  at::Tensor x = inputs;
  for (const ModelLayer& layer : part.Layers()) {
    x = asked.value("recompute", false) ? Recompute(layer.forward, x) : layer.forward(x);
  }
  const at::Tensor targets = at::tensor(asked.at("targets").get<std::vector<int64_t>>());
  const at::Tensor loss = part.Loss(x, targets);
  loss.backward();
  answer["loss"] = loss.item<double>();
  return answer;
}

// Answers a request with "parts". The weights are loaded by the whole model and copied to the
// parts.
json AnswerInParts(const json& asked) {
  const int parts = asked["parts"];
  const int64_t tokens = asked.at("input_shape").at(0);
  const ModelConfig config = ParseModelSection(SectionOf(asked), "trace");
  const std::shared_ptr<Model> whole = MakePart(config, tokens, {}, asked.at("seed"));
  if (asked.contains("weights")) InitWeights(*whole, config, asked["weights"]);
  WholeGradients gradients;
  std::vector<json> answers(static_cast<size_t>(parts));
  const auto errors = RunRanks(parts, [&](const ProcessGroup& group) {
    const TensorParallel tensor = {.parts = parts,
                                   .part = group.rank(),
                                   .group = &group,
                                   .sequence_parallel = asked.value("sequence_parallel", false)};
    const std::shared_ptr<Model> part = MakePart(config, tokens, tensor, asked.at("seed"));
    CopyWeights(*part, *whole);
    answers[static_cast<size_t>(group.rank())] = TrainPart(*part, asked);
    gradients.Add(*part, group.rank());
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  json answer = answers[0];
  answer["problems"] = gradients.problems();
  for (const json& other : answers) {
    if (other != answers[0]) answer["problems"].push_back("the loss or the logits");
  }
  std::vector<NamedTensor> named;
  for (const auto& [name, gradient] : gradients.values()) named.push_back({name, gradient});
  if (asked.contains("gradients")) ExportHuggingFace(named, config, asked["gradients"]);
  return answer;
}

json Answer(const json& asked) {
  if (asked.contains("parts")) return AnswerInParts(asked);
  const auto input_shape = asked.at("input_shape").get<std::vector<int64_t>>();
  ModelConfig config = ParseModelSection(SectionOf(asked), "trace");
  if (asked.value("documents", false)) config = *config.family().SeparateDocuments(config);
  at::manual_seed(asked.at("seed"));
  const std::shared_ptr<Model> model = MakeModel(config, input_shape);
  if (asked.contains("lora")) {
    const LoraConfig lora = ReadLora(JsonObject(asked["lora"], "trace", "lora"));
    AddAdapters(*model, lora);
    if (!lora.init_weights.empty()) InitAdapters(*model, lora, lora.init_weights);
  }
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
    if (!item.value().requires_grad()) continue;
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
