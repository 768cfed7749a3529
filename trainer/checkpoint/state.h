// Tensors of a run on their way into a checkpoint's files and back.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// Writes whole tensors into one new file of a begun checkpoint and enters them and the file into
// the manifest. Data parallel ranks hold the same, so one of them writes everything; a rank that
// holds only a part would write its slices into a file of its own in the same way.
void WriteState(const std::string& folder, const std::string& file,
                const std::vector<NamedTensor>& state, Manifest& manifest);

// Fills every tensor of `state` in place from the slices of the checkpoint, however many ranks
// wrote them. Numbers of floating point are rounded to the dtype that `state` has, so that a run
// may go on in another precision. Throws kBadInput, naming the tensor, unless both hold the same
// names, shapes and, apart from that, dtypes.
void LoadState(const Checkpoint& checkpoint, const std::vector<NamedTensor>& state);

}  // namespace dslaunch
