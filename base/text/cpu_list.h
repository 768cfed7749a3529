// Parses and formats lists of CPUs as the kernel, numactl and DeepSpeed's --bind_core_list write
// them: "1,3-5".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns the numbers in `text`, which must be in ascending order, without overlap or blanks. Fails
// with kUsage if `text` is not such a list; the message is part of a sentence and quotes the
// invalid part.
Result<std::vector<int>> ParseCpuList(std::string_view text);

// Returns the shortest list, such as "1,3-5". Precondition: `cpus` is ascending.
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace dslaunch
