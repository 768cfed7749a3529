// Describes how a model is divided over the ranks of a tensor-parallel group.
#pragma once

namespace dslaunch {

class ProcessGroup;

// The part of a model that a rank creates. The default is the whole model.
struct TensorParallel {
  int parts = 1;
  int part = 0;
  // The group of the ranks of all parts, in the order of the parts. Must outlive the model. Null if
  // the model only runs in a ShapePass, which exchanges nothing.
  const ProcessGroup* group = nullptr;
  // True if each rank computes norms, residuals and their dropouts only for 1 / parts of each
  // sequence's tokens (Korthikanti et al., arXiv 2205.05198, section 4.2.2). The number of tokens
  // must be a multiple of `parts`.
  bool sequence_parallel = false;

  bool divides() const { return parts > 1; }
  bool divides_tokens() const { return divides() && sequence_parallel; }
};

}  // namespace dslaunch
