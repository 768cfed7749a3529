// The step that knows its gradients' norm before it updates: all ranks decide together whether to
// skip it.
#pragma once

#include <string>
#include <vector>

#include "trainer/step/optimizer_step.h"

namespace dslaunch {

// Works for every layout of states, exchange and pipeline.
class SynchronousStep : public OptimizerStep {
 public:
  // Gives all pipeline stages that share a parameter the values of the copy that counts.
  explicit SynchronousStep(StepParts parts);

 protected:
  void Update(const std::vector<at::Tensor>& losses) override;

 private:
  // This rank's part of a tied parameter.
  struct TiedPart {
    size_t part = 0;
    const ProcessGroup* group = nullptr;
  };

  void TieParameters();
  void AllReduceTied(std::vector<at::Tensor>& gradients) const;
  double OwnNorm(const std::vector<at::Tensor>& gradients) const;
  double NormOverRanks(double own) const;
  std::string FirstNonFiniteParameter(const std::vector<at::Tensor>& gradients) const;
  // Whether this step's gradients are this rank's own, because ranks exchange something else.
  bool GradientsAreOwn() const { return exchange_ && exchange_->gradients_are_own(); }
  // Whether each rank decides alone if its step is skipped.
  bool DecidesAlone() const { return GradientsAreOwn() && weights_differ(); }

  std::vector<TiedPart> tied_parts_;  // in the order of ranks_.tied()
};

}  // namespace dslaunch
