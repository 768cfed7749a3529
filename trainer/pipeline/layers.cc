#include <c10/util/Type.h>

#include "dslaunch/pipeline.h"
#include "trainer/base/train_error.h"

namespace dslaunch::pipeline_detail {
namespace {

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// Removes default template arguments of the form ", <name><...>", because C++ code usually omits
// them.
void RemoveArguments(std::string& text, const std::string& name) {
  const std::string begin = ", " + name + "<";
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    size_t end = at + begin.size();
    for (int depth = 1; depth > 0 && end < text.size(); ++end) {
      if (text[end] == '<') ++depth;
      if (text[end] == '>') --depth;
    }
    text.erase(at, end - at);
  }
}

std::string Count(size_t tensors) {
  return std::to_string(tensors) + (tensors == 1 ? " tensor" : " tensors");
}

}  // namespace

std::string TypeName(const std::type_info& type) {
  std::string name = c10::demangle(type.name());
  Replace(name, "std::__cxx11::", "std::");
  Replace(name, "(anonymous namespace)::", "");
  for (const char* usual :
       {"std::char_traits", "std::allocator", "std::less", "std::hash", "std::equal_to"}) {
    RemoveArguments(name, usual);
  }
  Replace(name, " >", ">");
  Replace(name, "std::basic_string<char>", "std::string");
  return name;
}

void FailInputs(const std::string& layer, size_t taken, size_t given) {
  throw TrainError(ExitCode::kBadInput,
                   layer + " takes " + Count(taken) + " but gets " + Count(given) +
                       "; a layer must take each tensor that the layer before it returns, or "
                       "all of them as dslaunch::Tensors");
}

}  // namespace dslaunch::pipeline_detail
