// Lists of CPUs as the kernel, numactl and DeepSpeed's --bind_core_list write them: "1,3-5".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// The numbers, ascending. They must be so in `text` too, without overlap and without blanks. Errors
// are kUsage and fragments of a sentence, which quote the part that is wrong.
Result<std::vector<int>> ParseCpuList(std::string_view text);

// The shortest such list; `cpus` are ascending.
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace dslaunch
