#include "trainer/checkpoint/tensor_type.h"

#include <utility>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kDouble, "F64"}, {at::kFloat, "F32"}, {at::kHalf, "F16"},  {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},   {at::kInt, "I32"},   {at::kShort, "I16"}, {at::kChar, "I8"},
    {at::kByte, "U8"},    {at::kBool, "BOOL"}};

}  // namespace

const char* SafetensorsDtype(at::ScalarType type) {
  for (const auto& [known, name] : kTypes) {
    if (known == type) return name;
  }
  throw TrainError(ExitCode::kInternal,
                   std::string("internal error: no file holds ") + c10::toString(type));
}

std::optional<at::ScalarType> ScalarTypeOf(const std::string& dtype) {
  for (const auto& [type, name] : kTypes) {
    if (dtype == name) return type;
  }
  return std::nullopt;
}

bool CanFill(const std::optional<at::ScalarType>& saved, at::ScalarType wanted) {
  return saved == wanted || (saved && c10::isFloatingType(*saved) && c10::isFloatingType(wanted));
}

std::string DescribedTensor(const std::string& dtype, const std::vector<int64_t>& shape) {
  std::string text = dtype + " [";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace dslaunch
