#include "dslaunch/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <array>
#include <string>
#include <unordered_set>
#include <utility>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors&)>;

[[noreturn]] void Fail(const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, "Recompute: " + problem);
}

// Saves and restores the global state on which a forward pass depends besides its inputs and
// captured variables: generators and autocast.
class Surroundings {
 public:
  static Surroundings Now() {
    Surroundings now;
    for (at::Generator& generator : Generators()) {
      const std::lock_guard lock(generator.mutex());
      now.generator_states_.push_back(generator.get_state());
    }
    for (size_t i = 0; i < kDevices.size(); ++i) {
      now.autocast_[i] = {at::autocast::is_autocast_enabled(kDevices[i]),
                          at::autocast::get_autocast_dtype(kDevices[i])};
    }
    return now;
  }

  void Restore() const {
    std::vector<at::Generator> generators = Generators();
    for (size_t i = 0; i < generators.size(); ++i) {
      const std::lock_guard lock(generators[i].mutex());
      generators[i].set_state(generator_states_.at(i));
    }
    for (size_t i = 0; i < kDevices.size(); ++i) {
      at::autocast::set_autocast_enabled(kDevices[i], autocast_[i].enabled);
      at::autocast::set_autocast_dtype(kDevices[i], autocast_[i].dtype);
    }
  }

 private:
  static constexpr std::array kDevices = {at::DeviceType::CPU, at::DeviceType::CUDA};
  struct Autocast {
    bool enabled = false;
    at::ScalarType dtype = at::ScalarType::Undefined;
  };
  // Returns the default generators of the CPU and of the current GPU.
  static std::vector<at::Generator> Generators() {
    std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
    if (at::globalContext().hasCUDA()) {
      const c10::Device device = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
      generators.push_back(at::globalContext().defaultGenerator(device));
    }
    return generators;
  }

  std::vector<at::Tensor> generator_states_;
  std::array<Autocast, kDevices.size()> autocast_;
};

struct KeptInput {
  at::Tensor tensor;  // the input, detached from the graph
  bool requires_grad = false;
  uint32_t version = 0;

  bool changed() const { return !tensor.is_inference() && tensor._version() != version; }
};

std::vector<KeptInput> Keep(const Tensors& inputs) {
  std::vector<KeptInput> kept;
  for (const at::Tensor& input : inputs) {
    kept.push_back({input.detach(), input.requires_grad(),
                    input.is_inference() ? 0 : static_cast<uint32_t>(input._version())});
  }
  return kept;
}

// One execution of `forward` with a graph that begins at its inputs and at parameters.
class Run {
 public:
  Run(const Forward& forward, const std::vector<KeptInput>& kept) {
    const at::AutoGradMode with_graph(true);
    // Autocast's cached copies of parameters would connect this graph to other graphs that read
    // them, so the cache is disabled.
    const auto restore_cache =
        c10::make_scope_exit([cached = at::autocast::is_autocast_cache_enabled()] {
          at::autocast::set_autocast_cache_enabled(cached);
        });
    at::autocast::set_autocast_cache_enabled(false);
    const uint64_t first = at::sequence_number::peek();
    for (const KeptInput& input : kept) {
      inputs_.push_back(input.tensor.detach().requires_grad_(input.requires_grad));
    }
    outputs_ = forward(inputs_);
    FindParameters(first);
  }

  const Tensors& inputs() const { return inputs_; }
  const Tensors& outputs() const { return outputs_; }
  // Returns the nodes that accumulate the gradients of the parameters on which the outputs depend.
  const std::vector<std::shared_ptr<autograd::Node>>& parameters() const { return parameters_; }

 private:
  // Finds the parameters' nodes. Nodes of this graph have sequence numbers from `first`. Throws if
  // the graph contains an older node.
  void FindParameters(uint64_t first) {
    std::unordered_set<const autograd::Node*> seen = {nullptr};
    // Owners of the nodes in `seen`, which keep them alive.
    std::vector<std::shared_ptr<autograd::Node>> own;
    for (const at::Tensor& input : inputs_) {
      if (!input.requires_grad()) continue;
      own.push_back(autograd::impl::gradient_edge(input).function);
      seen.insert(own.back().get());
    }
    std::vector<std::shared_ptr<autograd::Node>> ahead;
    for (const at::Tensor& output : outputs_) {
      if (output.requires_grad()) ahead.push_back(autograd::impl::gradient_edge(output).function);
    }
    while (!ahead.empty()) {
      const std::shared_ptr<autograd::Node> node = std::move(ahead.back());
      ahead.pop_back();
      if (!seen.insert(node.get()).second) continue;
      if (dynamic_cast<autograd::AccumulateGrad*>(node.get()) != nullptr) {
        parameters_.push_back(node);
        continue;
      }
      if (node->sequence_nr() < first) {
        Fail(
            "the recomputed function reads a tensor that was computed outside it and needs a "
            "gradient (" +
            node->name() + "); pass that tensor as an input");
      }
      for (const autograd::Edge& edge : node->next_edges()) ahead.push_back(edge.function);
    }
  }

  Tensors inputs_, outputs_;
  std::vector<std::shared_ptr<autograd::Node>> parameters_;
};

// Disables the hooks of parameters for the lifetime of the object. The hooks must run when
// gradients arrive at the parameters, not when gradients pass through the nested graph.
class HooksAside {
 public:
  explicit HooksAside(const std::vector<autograd::Edge>& edges) : edges_(edges) { Swap(); }
  ~HooksAside() { Swap(); }
  HooksAside(const HooksAside&) = delete;
  HooksAside& operator=(const HooksAside&) = delete;

 private:
  void Swap() {
    hooks_.resize(edges_.size());
    for (size_t i = 0; i < edges_.size(); ++i) {
      std::swap(hooks_[i], edges_[i].function->tensor_pre_hooks());
    }
  }

  const std::vector<autograd::Edge>& edges_;
  std::vector<std::vector<std::unique_ptr<autograd::FunctionPreHook>>> hooks_;
};

// Replaces all operations of `forward` in a graph. Its next edges lead to the inputs, then to the
// parameters. The outer backward pass therefore accumulates each parameter's gradient once, even if
// the parameter is read several times, and runs the parameter's hooks as without recomputation. (If
// the nested backward pass accumulated gradients, the hooks would run once for each recomputed
// part.)
class RecomputeNode : public autograd::Node {
 public:
  RecomputeNode(Forward forward, std::vector<KeptInput> inputs, Tensors buffers,
                Surroundings surroundings)
      : forward_(std::move(forward)),
        inputs_(std::move(inputs)),
        buffers_(std::move(buffers)),
        surroundings_(std::move(surroundings)) {}

  // Returns the outputs of the first run with `node` as their history.
  static Tensors Adopt(const std::shared_ptr<RecomputeNode>& node, const Tensors& outputs) {
    Tensors adopted;
    node->is_differentiable_.clear();
    for (const at::Tensor& output : outputs) {
      adopted.push_back(output.detach());
      node->is_differentiable_.push_back(output.requires_grad());
      if (output.requires_grad()) autograd::set_history(adopted.back(), node);
    }
    return adopted;
  }

  std::string name() const override { return "dslaunch::Recompute"; }

  void release_variables() override {
    forward_ = nullptr;
    inputs_.clear();
    buffers_.clear();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    autograd::variable_list results(num_outputs());
    if (at::GradMode::is_enabled()) {
      Fail("gradients of gradients are not supported; run the backward pass without create_graph");
    }
    if (!forward_) {
      Fail("a second backward pass ran through it; run the first one with retain_graph");
    }
    const size_t inputs = inputs_.size();
    for (size_t i = 0; i < inputs; ++i) {
      if (inputs_[i].changed()) {
        Fail("its input " + std::to_string(i) + " was changed in place before the backward pass");
      }
    }
    const Run again = RunAgain();

    autograd::edge_list roots;
    autograd::variable_list root_gradients;
    for (size_t i = 0, gradient = 0; i < is_differentiable_.size(); ++i) {
      if (!is_differentiable_[i]) continue;
      at::Tensor& given = gradients[gradient++];
      if (!given.defined()) continue;
      roots.push_back(autograd::impl::gradient_edge(again.outputs()[i]));
      root_gradients.push_back(std::move(given));
    }
    autograd::edge_list wanted;
    std::vector<size_t> places;  // indices of the `wanted` results in `results`
    for (size_t i = 0; i < results.size(); ++i) {
      if (!task_should_compute_output(i)) continue;
      wanted.push_back(i < inputs ? autograd::impl::gradient_edge(again.inputs()[i])
                                  : next_edge(i));
      places.push_back(i);
    }
    if (roots.empty() || wanted.empty()) return results;

    const HooksAside hooks(wanted);
    autograd::variable_list found = autograd::Engine::get_default_engine().execute(
        roots, root_gradients, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/false, wanted);
    for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(found[i]);
    return results;
  }

 private:
  Run RunAgain() const {
    Tensors values;  // values of buffers_ before `forward` ran again
    for (const at::Tensor& buffer : buffers_) values.push_back(buffer.clone());
    const auto leave = c10::make_scope_exit([&, found = Surroundings::Now()] {
      found.Restore();
      // The graph may have saved the buffers and would detect a direct change, so the values are
      // written through variable_data().
      for (size_t i = 0; i < values.size(); ++i) buffers_[i].variable_data().copy_(values[i]);
    });
    surroundings_.Restore();
    Run again(forward_, inputs_);
    bool same = again.outputs().size() == is_differentiable_.size();
    for (size_t i = 0; same && i < is_differentiable_.size(); ++i) {
      same = again.outputs()[i].requires_grad() == is_differentiable_[i];
    }
    std::unordered_set<const autograd::Node*> known;
    for (const autograd::Edge& edge : next_edges()) known.insert(edge.function.get());
    for (const auto& parameter : again.parameters()) same &= known.contains(parameter.get());
    if (!same) {
      Fail(
          "the function computed different results in the backward pass than in the forward pass; "
          "it "
          "must be deterministic");
    }
    return again;
  }

  Forward forward_;
  std::vector<KeptInput> inputs_;
  Tensors buffers_;
  Surroundings surroundings_;
  std::vector<bool> is_differentiable_;  // true for each output that is differentiable
};

}  // namespace

Tensors Recompute(const Forward& forward, const Tensors& inputs, const Tensors& buffers) {
  if (!at::GradMode::is_enabled()) return forward(inputs);
  std::vector<KeptInput> kept = Keep(inputs);
  Surroundings surroundings = Surroundings::Now();
  const Run run(forward, kept);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].changed()) {
      Fail("the function changes its input " + std::to_string(i) +
           " in place, so the results cannot be recomputed; change a copy instead");
    }
  }
  autograd::edge_list edges;
  for (const at::Tensor& input : inputs) edges.push_back(autograd::impl::gradient_edge(input));
  for (const auto& parameter : run.parameters()) edges.emplace_back(parameter, 0);
  const std::shared_ptr<RecomputeNode> node(
      new RecomputeNode(forward, std::move(kept), buffers, std::move(surroundings)),
      autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  return RecomputeNode::Adopt(node, run.outputs());
}

at::Tensor Recompute(const std::function<at::Tensor(const at::Tensor&)>& forward,
                     const at::Tensor& input, const Tensors& buffers) {
  const Forward of_one = [forward](const Tensors& inputs) { return Tensors{forward(inputs[0])}; };
  return Recompute(of_one, Tensors{input}, buffers)[0];
}

}  // namespace dslaunch
