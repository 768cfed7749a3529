#include "trainer/weights/convert_weights.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/tensor_blocks.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/weights/config_json.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFiles[] = {kConfigJson,
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "tokenizer.model",
                                       "chat_template.jinja",
                                       "vocab.json",
                                       "merges.txt"};
constexpr uintmax_t kMaxModelFileBytes = uintmax_t{1} << 30;

void CopyFile(const std::string& from, const std::string& folder, const std::string& name) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(from, error);
  if (!error && bytes > kMaxModelFileBytes) {
    RefuseInput(from + " has " + std::to_string(bytes) + " bytes, too many for a " + name);
  }
  ReplaceFile(folder, name, [&](const std::string& path) {
    fs::copy_file(from, path, error);
    if (error) throw TrainError(ExitCode::kIo, from + ": cannot be copied: " + error.message());
  });
}

}  // namespace

ConvertedWeights PlanWeights(const Checkpoint& checkpoint, std::optional<at::ScalarType> dtype) {
  ConvertedWeights weights;
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    if (!IsOfModel(tensor)) continue;
    const std::optional<at::ScalarType> saved = ScalarTypeOf(tensor.dtype);
    const bool rounds = dtype && saved && c10::isFloatingType(*saved);
    weights.headers.push_back(
        {tensor.name, rounds ? SafetensorsDtype(*dtype) : tensor.dtype, tensor.shape});
    weights.records.push_back(&tensor);
    weights.bytes += BytesOf(weights.headers.back());
  }
  return weights;
}

void ConvertWeights(const Checkpoint& checkpoint, const ConvertedWeights& weights,
                    const WeightOutput& output,
                    const std::function<void(uint64_t bytes)>& on_written) {
  StoredTensors stored(checkpoint);
  std::vector<char> bytes;
  WriteWeights(output, weights.headers, [&](size_t i, NewSafetensorsFile& file) {
    const TensorRecord& record = *weights.records[i];
    const std::string& dtype = weights.headers[i].dtype;
    ForEachBlock(NumElements(record.shape).value(), [&](int64_t start, int64_t stop) {
      uint64_t written = 0;
      if (dtype == record.dtype) {
        ReadBlock(stored, record, start, stop, bytes);
        file.Write(bytes.data(), written = bytes.size());
      } else {
        const at::Tensor block = ReadBlock(stored, record, *ScalarTypeOf(dtype), start, stop);
        file.Write(block.const_data_ptr(), written = block.nbytes());
      }
      if (on_written) on_written(written);
    });
  });
}

std::vector<std::string> CopyModelFiles(const std::vector<std::string>& folders,
                                        const std::string& to) {
  std::vector<std::string> copied;
  for (const char* name : kModelFiles) {
    for (const std::string& folder : folders) {
      const std::string from = folder + "/" + name;
      std::error_code ignored;
      if (!fs::is_regular_file(from, ignored)) continue;
      if (!fs::equivalent(from, to + "/" + name, ignored)) {
        CopyFile(from, to, name);
        copied.emplace_back(name);
      }
      break;
    }
  }
  if (!copied.empty()) SyncFolder(to);
  return copied;
}

}  // namespace dslaunch
