#include "trainer/nn/tensor_parallel/exchanges.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/base/train_error.h"
#include "trainer/nn/named_operator.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

// Returns the group's address as a number, because operators cannot take a pointer as an argument.
int64_t NumberOf(const TensorParallel& tensor) { return reinterpret_cast<int64_t>(tensor.group); }
const ProcessGroup& GroupOf(int64_t number) {
  TORCH_CHECK(number != 0, "a model without its tensor-parallel group was run outside a ShapePass");
  return *reinterpret_cast<const ProcessGroup*>(number);
}

at::Tensor Reduce(const at::Tensor& x, int64_t group, ReduceOp op) {
  at::Tensor result = x.clone(at::MemoryFormat::Contiguous);
  GroupOf(group).AllReduce(result, op);
  return result;
}
at::Tensor Sum(const at::Tensor& x, int64_t group) { return Reduce(x, group, ReduceOp::kSum); }
at::Tensor Max(const at::Tensor& x, int64_t group) { return Reduce(x, group, ReduceOp::kMax); }
// Gathers the tensors [...] of all ranks; returns [parts, ...].
at::Tensor Gather(const at::Tensor& x, int64_t group, int64_t) {
  return GroupOf(group).AllGather(x.contiguous());
}
// Reduces the tensors [parts, ...] of all ranks; returns this rank's part [...].
at::Tensor Scatter(const at::Tensor& x, int64_t group) {
  return GroupOf(group).ReduceScatter(x.contiguous());
}

at::Tensor ShapeOfReduced(const at::Tensor& x, int64_t) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}
at::Tensor ShapeOfGathered(const at::Tensor& x, int64_t, int64_t parts) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), parts);
  return at::empty(sizes, x.options());
}
at::Tensor ShapeOfScattered(const at::Tensor& x, int64_t) {
  return at::empty(x.sizes().slice(1), x.options());
}

TORCH_LIBRARY_FRAGMENT(dslaunch, library) {
  library.def("tensor_sum(Tensor x, int group) -> Tensor");
  library.def("tensor_max(Tensor x, int group) -> Tensor");
  library.def("tensor_gather(Tensor x, int group, int parts) -> Tensor");
  library.def("tensor_scatter(Tensor x, int group) -> Tensor");
}
void Implement(torch::Library& library) {
  library.impl("tensor_sum", &Sum);
  library.impl("tensor_max", &Max);
  library.impl("tensor_gather", &Gather);
  library.impl("tensor_scatter", &Scatter);
}
TORCH_LIBRARY_IMPL(dslaunch, CPU, library) { Implement(library); }
TORCH_LIBRARY_IMPL(dslaunch, CUDA, library) { Implement(library); }
TORCH_LIBRARY_IMPL(dslaunch, Meta, library) {
  library.impl("tensor_sum", &ShapeOfReduced);
  library.impl("tensor_max", &ShapeOfReduced);
  library.impl("tensor_gather", &ShapeOfGathered);
  library.impl("tensor_scatter", &ShapeOfScattered);
}

// Calls Gather as an operator; [...] becomes [parts, ...].
at::Tensor GatherParts(const at::Tensor& x, const TensorParallel& tensor) {
  static const auto run = NamedOperator<decltype(Gather)>("dslaunch::tensor_gather");
  return run.call(x, NumberOf(tensor), tensor.parts);
}

// Gathers the tokens of all ranks: [B, T / parts, H] becomes [B, T, H].
at::Tensor GatherTokens(const at::Tensor& x, const TensorParallel& tensor) {
  return GatherParts(x, tensor).transpose(0, 1).flatten(1, 2);
}

// Sums the tokens over the ranks, and returns the sums of this rank: [B, T, H] becomes
// [B, T / parts, H].
at::Tensor ScatterTokens(const at::Tensor& x, const TensorParallel& tensor) {
  static const auto run = NamedOperator<decltype(Scatter)>("dslaunch::tensor_scatter");
  const at::Tensor by_part = x.unflatten(1, {tensor.parts, -1}).transpose(0, 1);
  return run.call(by_part.contiguous(), NumberOf(tensor));
}

// Type of an exchange. Conjugate is an autograd function whose backward pass is another exchange
// over the same group.
using Exchange = at::Tensor (*)(const at::Tensor&, const TensorParallel&);

at::Tensor Unchanged(const at::Tensor& x, const TensorParallel&) { return x.view_as(x); }

template <Exchange ahead, Exchange back>
struct Conjugate : autograd::Function<Conjugate<ahead, back>> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            const TensorParallel& tensor) {
    context->saved_data["group"] = NumberOf(tensor);
    context->saved_data["parts"] = int64_t{tensor.parts};
    return ahead(x, tensor);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const int64_t group = context->saved_data["group"].toInt();
    const TensorParallel tensor = {.parts = static_cast<int>(context->saved_data["parts"].toInt()),
                                   .group = reinterpret_cast<const ProcessGroup*>(group)};
    return {back(gradients[0], tensor), {}};
  }
};

using SumBackward = Conjugate<&Unchanged, &SumOverParts>;
using SumForward = Conjugate<&SumOverParts, &Unchanged>;
using GatherForward = Conjugate<&GatherTokens, &ScatterTokens>;
using ScatterForward = Conjugate<&ScatterTokens, &GatherTokens>;

// Autograd function whose backward pass sums the gradients of a part's holders. It sums a tensor
// over the whole group that has a slot for each different part, and each rank fills only the slot
// of its part. A separate group of the holders would need additional connections for one small
// message.
struct HoldersSum : autograd::Function<HoldersSum> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& part,
                            int64_t slots, int64_t slot, int64_t group) {
    context->saved_data["slots"] = slots;
    context->saved_data["slot"] = slot;
    context->saved_data["group"] = group;
    return part.view_as(part);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    std::vector<int64_t> sizes = gradients[0].sizes().vec();
    sizes.insert(sizes.begin(), number("slots"));
    const at::Tensor all = at::zeros(sizes, gradients[0].options());
    all.select(0, number("slot")).copy_(gradients[0]);
    const TensorParallel tensor = {.group = reinterpret_cast<const ProcessGroup*>(number("group"))};
    return {SumOverParts(all, tensor).select(0, number("slot")).clone(), {}, {}, {}};
  }
};

}  // namespace

at::Tensor EnterRegion(const at::Tensor& x, const TensorParallel& tensor) {
  if (!tensor.divides()) return x;
  return tensor.sequence_parallel ? GatherForward::apply(x, tensor) : SumBackward::apply(x, tensor);
}

at::Tensor LeaveRegion(const at::Tensor& x, const TensorParallel& tensor) {
  if (!tensor.divides()) return x;
  if (!tensor.sequence_parallel) return SumForward::apply(x, tensor);
  if (x.size(1) % tensor.parts != 0) {
    RefuseInput("the sequences have " + std::to_string(x.size(1)) +
                " tokens, which is not a multiple of the " + std::to_string(tensor.parts) +
                " ranks that divide them (tensor_parallel.autotp_size); change data.block_size or "
                "turn tensor_parallel.sequence_parallel off");
  }
  return ScatterForward::apply(x, tensor);
}

at::Tensor SumGradients(const at::Tensor& parameter, const TensorParallel& tensor) {
  return tensor.divides() ? SumBackward::apply(parameter, tensor) : parameter;
}

at::Tensor OutsideRegions(const at::Tensor& parameter, const TensorParallel& tensor) {
  return tensor.divides_tokens() ? SumGradients(parameter, tensor) : parameter;
}

// at::linear under autocast converts the bias to x's dtype, so this function does the same.
at::Tensor LeaveRegionAndAdd(const at::Tensor& x, const at::Tensor& bias,
                             const TensorParallel& tensor) {
  const at::Tensor sum = LeaveRegion(x, tensor);
  return bias.defined() ? sum + OutsideRegions(bias, tensor).to(sum.scalar_type()) : sum;
}

at::Tensor SumHoldersGradients(const at::Tensor& part, int holders, const TensorParallel& tensor) {
  if (holders == 1) return part;
  return HoldersSum::apply(part, tensor.parts / holders, tensor.part / holders, NumberOf(tensor));
}

at::Tensor SumOverParts(const at::Tensor& x, const TensorParallel& tensor) {
  static const auto run = NamedOperator<decltype(Sum)>("dslaunch::tensor_sum");
  return run.call(x, NumberOf(tensor));
}

at::Tensor MaxOverParts(const at::Tensor& x, const TensorParallel& tensor) {
  static const auto run = NamedOperator<decltype(Max)>("dslaunch::tensor_max");
  return run.call(x, NumberOf(tensor));
}

at::Tensor JoinParts(const at::Tensor& x, const TensorParallel& tensor) {
  return tensor.divides() ? GatherParts(x, tensor).movedim(0, -2).flatten(-2) : x;
}

}  // namespace dslaunch
