// Implements a synchronous parameter server (Li et al., "Scaling Distributed Machine Learning with
// the Parameter Server", OSDI 2014) among the ranks: every rank is a worker, and the first S ranks
// are also servers. The trained parameters form one flat tensor, of which each server holds an
// equal part with its optimizer state.
#pragma once

#include <optional>
#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/parallel/exchange/own_grad_sync.h"
#include "trainer/parallel/grad_sync.h"
#include "trainer/parallel/gradient_scale.h"
#include "trainer/parallel/model_states.h"

namespace dslaunch {

// Holds the model states of a rank that trains with parameter servers. Push: after the last
// backward pass of a step, each rank sends each server the server's part of the gradients. Servers
// add up these parts in the order of the ranks. Pull: after the optimizer's step, each server sends
// its part of the parameters to every rank. A single server of P parameters and N ranks therefore
// receives and sends (N - 1) P values in each step. In an all-reduce, each rank sends only 2 (N -
// 1) / N P values.
class ServerStates : public ModelStates {
 public:
  ServerStates(const EngineConfig& config, torch::nn::Module& module, const MeshGroups& ranks,
               Passes passes);

  void Begin(Pass pass) override;
  void BeforeBackward(bool last) override { local_.BeforeBackward(last); }
  void AfterBackward() override { local_.AfterBackward(); }
  void End() override;
  bool sharded() const override { return true; }
  std::vector<at::Tensor> Gradients() override;
  void CopyMasterToModel() override { Pull(); }
  void Clear() override;
  void DropGradients() override { local_.DropGradients(); }
  void GiveUp() override;
  void Unshard(const std::vector<at::Tensor>&) override {}
  void Reshard(const std::vector<at::Tensor>& parameters,
               std::optional<int> modifier_rank) override;
  MemoryUse memory() const override;
  int64_t live_bucket_bytes() const override { return 0; }
  std::vector<TensorPart> Frozen() const override;

 protected:
  int64_t SizeOf(int server) const;
  at::Tensor PartOf(const at::Tensor& flat, int server) const;
  // Creates a tensor on this rank's device.
  at::Tensor Empty(int64_t elements, at::ScalarType dtype) const;
  at::Tensor FlatModel() const;
  void SetModel(const at::Tensor& flat);

  torch::nn::Module& module_;
  const ProcessGroup& group_;
  const int servers_;
  const GradSyncOptions options_;
  const GradientScale scale_;
  const std::vector<NamedTensor> parameters_;  // trained parameters
  const std::vector<at::Tensor> buffers_;      // buffers, which are copied from rank 0 to all ranks
  OwnGradSync local_;
  // Dtype of the flat parameters, to which all parameter dtypes promote.
  at::ScalarType model_dtype_ = at::kFloat;
  at::ScalarType message_dtype_ = at::kFloat;  // dtype in which flat gradients are sent
  int64_t elements_ = 0;
  int64_t share_ = 0;  // number of elements per server; the last servers may have fewer
  Pass pass_ = Pass::kInference;
  std::vector<bool> has_gradient_;  // for each parameter: true if it got a gradient in this step
  // The next members are defined only on a server.
  at::Tensor weights_;   // server's part of the parameters, which the optimizer updates
  at::Tensor gradient_;  // server's part of the gradients, reduced over all ranks

 private:
  void Push();
  void Pull();
};

}  // namespace dslaunch
