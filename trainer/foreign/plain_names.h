// Removes from tensor names what wrappers of models add. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// The wrappers are DistributedDataParallel and DataParallel, if all names begin with "module.", and
// torch.compile, FSDP and activation checkpointing, which add "_orig_mod.", "_fsdp_wrapped_module."
// and "_checkpoint_wrapped_module." anywhere in a name. A part whose removal would make two names
// equal is kept.
class PlainNames {
 public:
  explicit PlainNames(const std::vector<std::string>& names);

  // Returns `name`, which need not be one of the names, without the parts that are removed from
  // these.
  std::string Of(std::string name) const;
  // Returns a sentence for the user; empty if nothing is removed.
  std::string note() const;

 private:
  std::vector<std::string> dropped_;
};

}  // namespace dslaunch
