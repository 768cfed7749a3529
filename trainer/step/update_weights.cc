#include "trainer/step/update_weights.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "trainer/device/streams.h"

namespace dslaunch {
namespace {

// Gradients of a piece in the form that the optimizer takes. If they are copied to another device,
// they are complete after the event `copied`.
struct PieceGradients {
  std::vector<at::Tensor> gradients;
  std::optional<c10::Event> copied;
};

bool LeaveDevice(const std::vector<WeightPart>& parts, const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].device() != parts[i].weight.device()) return true;
  }
  return false;
}

// Cuts the gradients into pieces. Returns one piece unless the optimizer needs converted or copied
// gradients, which take additional memory.
std::vector<UpdatePiece> CutGradients(const std::vector<WeightPart>& parts,
                                      const std::vector<at::Tensor>& gradients,
                                      const Optimizer& optimizer, bool leave_device,
                                      int64_t max_elements) {
  // Maximum number of elements per copy; enough for full speed.
  constexpr int64_t kMaxLeavingElements = int64_t{16} << 20;
  bool converts = leave_device;
  std::vector<int64_t> elements;
  for (size_t i = 0; i < gradients.size(); ++i) {
    elements.push_back(gradients[i].numel());
    converts |= gradients[i].scalar_type() != parts[i].weight.scalar_type();
  }
  if (!converts || !optimizer.takes_pieces()) return {{0, gradients.size()}};
  return CutUpdate(elements,
                   leave_device ? std::min(max_elements, kMaxLeavingElements) : max_elements);
}

PieceGradients Fetch(const UpdatePiece& piece, const std::vector<WeightPart>& parts,
                     const std::vector<at::Tensor>& gradients, const GradientScaling& scale,
                     bool leave_device) {
  PieceGradients fetched;
  for (size_t i = piece.begin; i < piece.end; ++i) {
    const at::ScalarType weight = parts[i].weight.scalar_type();
    fetched.gradients.push_back(
        gradients[i].to(at::promote_types(gradients[i].scalar_type(), weight)));
  }
  if (scale && !fetched.gradients.empty()) scale(fetched.gradients);
  for (size_t i = piece.begin; i < piece.end; ++i) {
    at::Tensor& gradient = fetched.gradients[i - piece.begin];
    const at::Tensor& weight = parts[i].weight;
    gradient = gradient.to(weight.device(), weight.scalar_type(), /*non_blocking=*/true);
  }
  if (leave_device) {
    const c10::Device device = gradients.front().device();
    fetched.copied.emplace(device.type());
    fetched.copied->record(CurrentStream(device));
  }
  return fetched;
}

}  // namespace

std::vector<UpdatePiece> CutUpdate(const std::vector<int64_t>& elements, int64_t max_elements) {
  std::vector<UpdatePiece> pieces(1);
  int64_t in_piece = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (pieces.back().end > pieces.back().begin && elements[i] > max_elements - in_piece) {
      pieces.push_back({i, i});
      in_piece = 0;
    }
    pieces.back().end = i + 1;
    in_piece += elements[i];
  }
  return pieces;
}

// Updates the weights piece by piece. While a piece of offloaded weights is updated, two copies run
// (as in the ZeRO-Offload paper): of the next piece's gradients to the host, and of the previous
// piece's weights back to the device.
void UpdateWeights(const EngineConfig& config, ModelStates& states, Optimizer& optimizer,
                   const std::vector<at::Tensor>& gradients, const GradientScaling& scale,
                   const at::Tensor& skip) {
  if (!config.cuda_graph)
    optimizer.Prepare();  // PrepareStep() makes this call if cuda_graph is set
  optimizer.BeginStep(skip);
  const std::vector<WeightPart>& parts = states.parts();
  const bool leave_device = LeaveDevice(parts, gradients);
  const std::vector<UpdatePiece> pieces =
      CutGradients(parts, gradients, optimizer, leave_device, config.zero.sub_group_size);
  std::deque<PieceGradients> fetched;
  size_t next = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    while (next < std::min(pieces.size(), i + (leave_device ? 2 : 1))) {
      fetched.push_back(Fetch(pieces[next++], parts, gradients, scale, leave_device));
    }
    if (leave_device) fetched.front().copied->synchronize();
    optimizer.StepParts(pieces[i].begin, fetched.front().gradients);
    fetched.pop_front();
    states.Updated(pieces[i].begin, pieces[i].end);
  }
  optimizer.EndStep();
  states.CopyMasterToModel();
}

}  // namespace dslaunch
