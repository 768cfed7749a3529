// Converts between LibTorch's dtypes and their names in safetensors files.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// Returns the name of a dtype, such as "F32" for at::kFloat. Throws kInternal for a dtype that the
// trainer does not use.
const char* SafetensorsDtype(at::ScalarType type);

// Returns the dtype with this name; nullopt if SafetensorsDtype never returns it.
std::optional<at::ScalarType> ScalarTypeOf(const std::string& dtype);

// Returns whether numbers of the dtype `saved` can fill a tensor of the dtype `wanted`: true if the
// dtypes are equal, or if both are floating-point dtypes, for which numbers are rounded.
bool CanFill(const std::optional<at::ScalarType>& saved, at::ScalarType wanted);

// Returns a text for messages, such as "F32 [2, 3]".
std::string DescribedTensor(const std::string& dtype, const std::vector<int64_t>& shape);

}  // namespace dslaunch
