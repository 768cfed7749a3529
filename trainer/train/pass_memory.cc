#include "trainer/train/pass_memory.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "dslaunch/autocast.h"
#include "dslaunch/model.h"
#include "dslaunch/recompute.h"
#include "trainer/base/train_error.h"
#include "trainer/deferred_init/shape_pass.h"
#include "trainer/engine/layer_runner.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/profile/forward_meter.h"
#include "trainer/train/prepare.h"

namespace dslaunch {
namespace {

// A model whose tensors have shapes but no memory, in its configured dtype. While this object
// exists, operations of its thread compute nothing.
class ShapedModel {
 public:
  ShapedModel(const Recipe& recipe, const at::Tensor& inputs)
      : engine_(recipe.engine),
        deferred_(DeferModel(recipe, inputs.sizes().slice(1).vec(), PartToPlan(recipe.engine))),
        pass_(std::make_unique<ShapePass>()) {
    CastModule(model(), engine_.precision.model, engine_.precision.batch_norm_float32);
    model().train();
    const std::vector<NamedTensor> trained = TrainableParameters(model());
    // Gradients count as model states, not as memory of a pass, so each is freed once it is
    // complete.
    arrivals_.emplace(trained, [this, trained](size_t i) {
      at::Tensor parameter = trained[i].tensor;
      const int64_t peak = pass_->peak_bytes(), live = pass_->live_bytes();
      parameter.mutable_grad().reset();
      gradients_.push_back({i, peak, live, pass_->live_bytes()});
      pass_->ResetPeak();
    });
  }

  Model& model() { return *deferred_.model; }

  // Returns a micro-batch of copies of `sample`, in the dtype that the model takes.
  at::Tensor MicroBatch(const at::Tensor& sample) const {
    std::vector<int64_t> shape = sample.sizes().vec();
    shape[0] = engine_.batch.micro_batch_size;
    const at::Tensor batch = sample.expand(shape).contiguous();
    const bool casts = engine_.precision.model != Dtype::kFloat32 && batch.is_floating_point();
    return casts ? batch.to(ToScalarType(engine_.precision.model)) : batch;
  }

  AutocastScope Autocast() const {
    const std::optional<Dtype> dtype = engine_.precision.autocast;
    return AutocastScope(dtype ? std::make_optional(ToScalarType(*dtype)) : std::nullopt);
  }

  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets) {
    const at::Tensor loss = model().Loss(output, targets);
    return loss.to(at::promote_types(loss.scalar_type(), at::kFloat)) * 1.0;
  }

  // Measures the bytes that a forward and a backward pass use beyond the bytes that exist when this
  // object is constructed.
  struct Count {
    explicit Count(ShapedModel& counted) : shaped(counted), before(counted.pass_->live_bytes()) {
      shaped.gradients_.clear();
      shaped.pass_->ResetPeak();
    }
    int64_t live() const { return shaped.pass_->live_bytes() - before; }
    int64_t at_end() const { return shaped.pass_->peak_bytes() - before; }
    std::vector<GradientArrival> gradients() const {
      std::vector<GradientArrival> gradients = shaped.gradients_;
      for (GradientArrival& gradient : gradients) {
        gradient.peak -= before;
        gradient.live -= before;
        gradient.left -= before;
      }
      return gradients;
    }
    int64_t peak() const {
      int64_t peak = at_end();
      for (const GradientArrival& gradient : gradients()) peak = std::max(peak, gradient.peak);
      return peak;
    }
    ShapedModel& shaped;
    const int64_t before;
  };

 private:
  const EngineConfig& engine_;
  DeferredModel deferred_;
  std::unique_ptr<ShapePass> pass_;
  std::vector<GradientArrival> gradients_;
  // Refers to the members above, so it must be destroyed before them.
  std::optional<GradientArrivals> arrivals_;
};

at::Tensor Forward(ShapedModel& shaped, const EngineConfig& engine, const at::Tensor& input) {
  if (engine.number_checkpoints == 0) return shaped.model().forward(input);
  return LayerRunner(shaped.model(), engine.number_checkpoints).Forward(input);
}

std::vector<ModelLayer> LayersOf(Model& model) {
  std::vector<ModelLayer> layers = model.Layers();
  if (!layers.empty()) return layers;
  RefuseInput("the model does not list its layers; implement Layers() (dslaunch/model.h)");
}

// Runs layers [begin, end), given as `part`, on `x`. If `interval` > 0, recomputes them in groups
// of `interval` layers.
at::Tensor RunPart(const std::vector<ModelLayer>& layers, std::pair<size_t, size_t> part,
                   int64_t interval, const std::vector<at::Tensor>& buffers, at::Tensor x) {
  const auto [begin, end] = part;
  const size_t step = interval > 0 ? static_cast<size_t>(interval) : end - begin;
  for (size_t from = begin; from < end; from += step) {
    const size_t to = std::min(from + step, end);
    const auto run = [&layers, from, to](at::Tensor value) {
      for (size_t i = from; i < to; ++i) value = layers[i].forward(value);
      return value;
    };
    x = interval > 0 ? Recompute(run, x, buffers) : run(x);
  }
  return x;
}

// Returns the maximum bytes that the micro-batches in flight on a stage hold. Each micro-batch
// holds `chunk_bytes` of a chunk from the start of its forward pass to the end of its backward
// pass.
int64_t MostUnderWay(const std::vector<Action>& actions, const std::vector<int64_t>& chunk_bytes) {
  const bool split = std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    return action.kind == ActionKind::kBackwardWeight;
  });
  int64_t bytes = 0, most = 0;
  for (const Action& action : actions) {
    const int64_t own = chunk_bytes[static_cast<size_t>(action.chunk)];
    if (action.kind == ActionKind::kForward) bytes += own;
    most = std::max(most, bytes);
    const bool ends =
        split ? action.kind == ActionKind::kBackwardWeight : action.kind == ActionKind::kBackward;
    if (ends) bytes -= own;
  }
  return most;
}

}  // namespace

PassMemory MeasurePass(const Recipe& recipe, const Batch& sample) {
  ShapedModel shaped(recipe, sample.inputs);
  const at::AutoGradMode gradients(true);
  const at::Tensor inputs = shaped.MicroBatch(sample.inputs);
  const at::Tensor targets = shaped.MicroBatch(sample.targets);
  const ShapedModel::Count count(shaped);
  at::Tensor loss;
  {
    const AutocastScope autocast = shaped.Autocast();
    loss = shaped.Loss(Forward(shaped, recipe.engine, inputs), targets);
  }
  PassMemory memory{.activations = count.live()};
  loss.backward();
  memory.peak = count.peak();
  memory.arrivals = count.gradients();
  memory.peak_with_gradients = memory.at_end = count.at_end();
  for (size_t i = 1; i < memory.arrivals.size(); ++i) {
    memory.peak_with_gradients = std::max(memory.peak_with_gradients, memory.arrivals[i].peak);
  }
  return memory;
}

std::vector<PassMemory> MeasureStages(const Recipe& recipe, const LayerParts& parts,
                                      const Batch& sample) {
  const PipelineConfig& config = recipe.engine.pipeline;
  const auto stages = static_cast<size_t>(config.stages);
  ShapedModel shaped(recipe, sample.inputs);
  const at::AutoGradMode gradients(true);
  const std::vector<ModelLayer> layers = LayersOf(shaped.model());
  const std::vector<at::Tensor> buffers = shaped.model().buffers();
  const at::Tensor targets = shaped.MicroBatch(sample.targets);
  at::Tensor input = shaped.MicroBatch(sample.inputs);
  std::vector<std::vector<int64_t>> kept(stages);  // bytes that each chunk of a stage keeps
  // For each stage, the peak bytes of a pass beyond the bytes that it keeps.
  std::vector<int64_t> beyond(stages);
  for (size_t part = 0; part < parts.size(); ++part) {
    const size_t stage = part % stages;
    const ShapedModel::Count count(shaped);
    at::Tensor received = part == 0 ? input : at::empty_like(input);
    if (part > 0) received.set_requires_grad(input.is_floating_point());
    at::Tensor output;
    {
      const AutocastScope autocast = shaped.Autocast();
      output = RunPart(layers, parts[part], config.activation_checkpoint_interval, buffers,
                       std::move(received));
      if (part + 1 == parts.size()) output = shaped.Loss(output, targets);
    }
    kept[stage].push_back(count.live());
    const at::Tensor next = at::empty_like(output);
    if (output.requires_grad()) torch::autograd::backward({output}, {at::ones_like(output)});
    beyond[stage] = std::max(beyond[stage], count.peak() - kept[stage].back());
    input = next;
  }
  const PipelineSchedule schedule =
      MakePipelineSchedule(config.schedule, static_cast<int>(stages),
                           static_cast<int>(recipe.engine.batch.accumulation_steps),
                           static_cast<int>(config.virtual_stages));
  std::vector<PassMemory> memory;
  for (size_t stage = 0; stage < stages; ++stage) {
    const int64_t activations = MostUnderWay(schedule.actions[stage], kept[stage]);
    const int64_t peak = activations + beyond[stage];
    memory.push_back(
        {.activations = activations, .peak = peak, .peak_with_gradients = peak, .at_end = peak});
  }
  return memory;
}

std::vector<double> LayerFlops(const Recipe& recipe, const at::Tensor& inputs) {
  ShapedModel shaped(recipe, inputs);
  at::Tensor x = shaped.MicroBatch(inputs);
  std::vector<double> flops;
  for (const ModelLayer& layer : LayersOf(shaped.model())) {
    const AutocastScope autocast = shaped.Autocast();
    const at::NoGradGuard no_gradients;
    const ForwardMeter meter(shaped.model());
    x = layer.forward(x);
    flops.push_back(meter.flops());
  }
  return flops;
}

}  // namespace dslaunch
