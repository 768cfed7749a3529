// The names of LibTorch's number formats in safetensors files.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// Returns "F32" for at::kFloat, and so on. kInternal for a format that the trainer does not use.
const char* SafetensorsDtype(at::ScalarType type);

// Returns the format of a name; nullopt if SafetensorsDtype returns no such name.
std::optional<at::ScalarType> ScalarTypeOf(const std::string& dtype);

// Whether numbers of the format `saved` can fill a tensor of the format `wanted`: if both are
// equal, or if both are floating-point formats; the numbers are then rounded.
bool CanFill(const std::optional<at::ScalarType>& saved, at::ScalarType wanted);

// Returns "F32 [2, 3]", for messages.
std::string DescribedTensor(const std::string& dtype, const std::vector<int64_t>& shape);

}  // namespace dslaunch
