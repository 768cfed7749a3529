// Maps names of dtypes between PyTorch's pickles and safetensors files.
#pragma once

#include <string_view>

namespace dslaunch {

struct TorchDtype {
  // Name of the typed storage class; empty if only untyped storages have this dtype.
  std::string_view storage;
  std::string_view dtype;
  std::string_view name;  // dtype's name in safetensors files
};

inline constexpr TorchDtype kTorchDtypes[] = {
    {"torch.FloatStorage", "torch.float32", "F32"},
    {"torch.BFloat16Storage", "torch.bfloat16", "BF16"},
    {"torch.HalfStorage", "torch.float16", "F16"},
    {"torch.DoubleStorage", "torch.float64", "F64"},
    {"torch.LongStorage", "torch.int64", "I64"},
    {"torch.IntStorage", "torch.int32", "I32"},
    {"torch.ShortStorage", "torch.int16", "I16"},
    {"torch.CharStorage", "torch.int8", "I8"},
    {"torch.ByteStorage", "torch.uint8", "U8"},
    {"torch.BoolStorage", "torch.bool", "BOOL"},
    {"", "torch.uint16", "U16"},
    {"", "torch.uint32", "U32"},
    {"", "torch.uint64", "U64"},
    {"", "torch.float8_e4m3fn", "F8_E4M3"},
    {"", "torch.float8_e5m2", "F8_E5M2"},
};

// Returns the row of kTorchDtypes whose `column` is `name`; null if there is no such row or `name`
// is empty.
constexpr const TorchDtype* FindTorchDtype(std::string_view TorchDtype::*column,
                                           std::string_view name) {
  for (const TorchDtype& row : kTorchDtypes) {
    if (!name.empty() && row.*column == name) return &row;
  }
  return nullptr;
}

}  // namespace dslaunch
