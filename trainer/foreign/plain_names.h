// Removes the parts of tensor names that wrappers of models add. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Removes the parts that wrappers add to tensor names. The wrappers are DistributedDataParallel and
// DataParallel, if all names begin with "module.", and torch.compile, FSDP and activation
// checkpointing, which add "_orig_mod.", "_fsdp_wrapped_module." and "_checkpoint_wrapped_module."
// anywhere in a name. A part is kept if its removal would make two names equal.
class PlainNames {
 public:
  explicit PlainNames(const std::vector<std::string>& names);

  // Returns `name` without the parts that are removed from the constructor's names. `name` need not
  // be one of the constructor's names.
  std::string Of(std::string name) const;
  // Returns a sentence for the user about the removed parts; empty if nothing is removed.
  std::string note() const;

 private:
  std::vector<std::string> dropped_;
};

}  // namespace dslaunch
