// Reads the safetensors files whose paths are on standard input, one per line. Prints a line of
// JSON for each: {"tensors": {name: [dtype, shape, CRC-32 of its bytes]}}, or {"refused": reason}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace {

nlohmann::json Read(const std::string& path) {
  try {
    const dslaunch::SafetensorsFile file(path);
    nlohmann::json tensors = nlohmann::json::object();
    for (const auto& [name, tensor] : file.tensors()) {
      std::string bytes(tensor.end - tensor.begin, '\0');
      file.Read(tensor, bytes.data());
      tensors[name] = {tensor.dtype, tensor.shape, dslaunch::Crc32(bytes.data(), bytes.size())};
    }
    return {{"tensors", std::move(tensors)}};
  } catch (const dslaunch::TrainError& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace

int main() {
  std::string path;
  while (std::getline(std::cin, path)) std::cout << Read(path).dump() << '\n';
}
