// What safetensors files call LibTorch's number formats.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// "F32" of at::kFloat. A format that the trainer has no tensors of is kInternal.
const char* SafetensorsDtype(at::ScalarType type);

// The other way; nullopt for a name that SafetensorsDtype does not give.
std::optional<at::ScalarType> ScalarTypeOf(const std::string& dtype);

// Whether numbers of a file's format may fill a tensor: those of the same format, and floating
// point numbers any that are, which rounds them.
bool CanFill(const std::optional<at::ScalarType>& saved, at::ScalarType wanted);

// For messages: "F32 [2, 3]".
std::string DescribedTensor(const std::string& dtype, const std::vector<int64_t>& shape);

}  // namespace dslaunch
