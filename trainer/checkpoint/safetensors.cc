#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxProblemBytes = 400;
constexpr char kMetadata[] = "__metadata__";

std::array<unsigned char, kLengthBytes> LittleEndian(uint64_t value) {
  std::array<unsigned char, kLengthBytes> bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  return bytes;
}

// Returns whether `head` begins a zip archive, which torch.save writes, or a bare pickle of
// protocol 2 or later. The length of a safetensors header may begin with the same bytes (640 is 80
// 02), so call it only if the length is too large.
bool IsPickle(const unsigned char* head) {
  return std::memcmp(head, "PK\x03\x04", 4) == 0 || (head[0] == 0x80 && head[1] <= 5);
}

std::optional<uint64_t> Whole(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

// Parses a tensor's entry in the header. `wrong` must throw an error with the given problem.
SafetensorsFile::Tensor ParseTensor(const nlohmann::json& value, uint64_t data_begin,
                                    uint64_t data_bytes,
                                    const std::function<void(const std::string&)>& wrong) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    wrong("must have dtype, shape and data_offsets, and nothing else");
  }
  SafetensorsFile::Tensor tensor;
  const nlohmann::json& dtype = value["dtype"];
  const nlohmann::json& offsets = value["data_offsets"];
  if (!dtype.is_string() || !DtypeBytes(dtype.get<std::string>())) {
    wrong("unknown dtype " +
          dtype.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 40));
  }
  tensor.dtype = dtype.get<std::string>();
  if (!value["shape"].is_array()) wrong("its shape is not a list");
  for (const nlohmann::json& dim : value["shape"]) {
    const std::optional<uint64_t> size = Whole(dim);
    if (!size || *size > INT64_MAX) wrong("a dimension is not a whole number of at least 0");
    tensor.shape.push_back(static_cast<int64_t>(*size));
  }
  const std::optional<int64_t> count = NumElements(tensor.shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, *DtypeBytes(tensor.dtype), &bytes)) {
    wrong("its shape is too large");
  }
  const bool two = offsets.is_array() && offsets.size() == 2;
  const std::optional<uint64_t> begin = two ? Whole(offsets[0]) : std::nullopt;
  const std::optional<uint64_t> end = two ? Whole(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end) wrong("its data_offsets are not [begin, end)");
  if (*end > data_bytes) {
    wrong("ends at byte " + std::to_string(*end) + " of " + std::to_string(data_bytes) +
          "; the file is cut off");
  }
  if (*end - *begin != static_cast<uint64_t>(bytes)) {
    wrong("has " + std::to_string(*end - *begin) + " bytes where its shape needs " +
          std::to_string(bytes));
  }
  tensor.begin = data_begin + *begin;
  tensor.end = data_begin + *end;
  return tensor;
}

}  // namespace

std::optional<size_t> DtypeBytes(const std::string& dtype) {
  static const std::map<std::string, size_t> kBytes = {
      {"F64", 8}, {"F32", 4},     {"F16", 2},     {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2},     {"I8", 1},      {"U64", 8},  {"U32", 4},
      {"U16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1},   {"BOOL", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? std::nullopt : std::optional<size_t>(found->second);
}

std::optional<int64_t> NumElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return count;
}

uint64_t BytesOf(const TensorHeader& tensor) {
  return static_cast<uint64_t>(NumElements(tensor.shape).value()) *
         DtypeBytes(tensor.dtype).value();
}

NewSafetensorsFile::NewSafetensorsFile(const std::string& path,
                                       const std::vector<TensorHeader>& tensors,
                                       const std::map<std::string, std::string>& metadata)
    : file_(path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  for (const TensorHeader& tensor : tensors) {
    const uint64_t begin = unwritten_bytes_;
    unwritten_bytes_ += BytesOf(tensor);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, unwritten_bytes_}}};
  }
  std::string text = header.dump();
  // The header is padded with spaces, so that the bytes of the tensors are aligned to 8.
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  file_.Write(LittleEndian(text.size()).data(), kLengthBytes);
  file_.Write(text.data(), text.size());
}

void NewSafetensorsFile::Write(const void* data, size_t bytes) {
  if (bytes > unwritten_bytes_) {
    throw TrainError(ExitCode::kInternal, "internal error: a file of tensors gets too many bytes");
  }
  file_.Write(data, bytes);
  unwritten_bytes_ -= bytes;
}

FileSum NewSafetensorsFile::Finish() {
  if (unwritten_bytes_ > 0) {
    throw TrainError(ExitCode::kInternal, "internal error: a file of tensors lacks some of them");
  }
  return file_.Finish();
}

FileSum WriteSafetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<TensorHeader> headers;
  for (const TensorBytes& tensor : tensors) {
    headers.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  NewSafetensorsFile file(path, headers, metadata);
  for (size_t i = 0; i < tensors.size(); ++i) file.Write(tensors[i].data, BytesOf(headers[i]));
  return file.Finish();
}

SafetensorsFile::SafetensorsFile(std::string path) : file_(std::move(path)) {
  const uint64_t file_bytes = file_.bytes();
  std::array<unsigned char, kLengthBytes> head;
  if (file_bytes < kLengthBytes) {
    Fail("has " + std::to_string(file_bytes) + " bytes, too few for a safetensors file");
  }
  file_.Read(0, head.data(), head.size());
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{head[i]} << (8 * i);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    if (IsPickle(head.data())) {
      Fail(
          "is a pickle (torch.save), which can run code and is never read; save it as safetensors");
    }
    Fail("declares a header of " + std::to_string(header_bytes) + " bytes; at most " +
         std::to_string(kMaxSafetensorsHeaderBytes) + " are read");
  }
  if (header_bytes > file_bytes - kLengthBytes) Fail("ends inside its header");
  std::string header(header_bytes, '\0');
  file_.Read(kLengthBytes, header.data(), header.size());
  ParseHeader(header, kLengthBytes + header_bytes, file_bytes);
}

void SafetensorsFile::Read(const Tensor& tensor, void* out) const {
  Read(tensor, 0, tensor.end - tensor.begin, out);
}

void SafetensorsFile::Read(const Tensor& tensor, uint64_t first, size_t bytes, void* out) const {
  CheckInside(tensor, first, bytes);
  file_.Read(tensor.begin + first, out, bytes);
}

void SafetensorsFile::Read(const Tensor& tensor, const Shard& stored, const Shard& wanted,
                           void* out) const {
  const size_t width = DtypeBytes(tensor.dtype).value();
  CheckInside(tensor, 0, static_cast<uint64_t>(stored.elements()) * width);
  GatheringReads reads(file_, out);
  ForEachCommonRun(stored, wanted, [&](int64_t from, int64_t to, int64_t length) {
    reads.Add(tensor.begin + static_cast<uint64_t>(from) * width, static_cast<size_t>(to) * width,
              static_cast<size_t>(length) * width);
  });
  reads.Finish();
}

void SafetensorsFile::CheckInside(const Tensor& tensor, uint64_t first, uint64_t bytes) const {
  const uint64_t size = tensor.end - tensor.begin;
  if (first <= size && bytes <= size - first) return;
  throw TrainError(ExitCode::kInternal,
                   "internal error: " + file_.path() + " is read past the end of a tensor");
}

void SafetensorsFile::Fail(const std::string& problem) const {
  // Names from the file may be long and contain control characters, so the problem is cut and
  // sanitized.
  throw TrainError(ExitCode::kBadInput,
                   file_.path() + ": " + SanitizeForTerminal(problem.substr(0, kMaxProblemBytes)));
}

void SafetensorsFile::ParseHeader(const std::string& header, uint64_t data_begin,
                                  uint64_t file_bytes) {
  if (!header.starts_with('{')) Fail("its header is not a JSON object");
  const nlohmann::json json = ParseJson(header, file_.path(), JsonComments::kRefuse);
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      const auto is_text = [](const nlohmann::json& item) { return item.is_string(); };
      if (!value.is_null() &&
          !(value.is_object() && std::all_of(value.begin(), value.end(), is_text))) {
        Fail(std::string(kMetadata) + " is not an object of texts");
      }
      continue;
    }
    const auto fail = [&, &tensor_name = name](const std::string& problem) {
      Fail("tensor " + tensor_name + ": " + problem);
    };
    tensors_.emplace(name, ParseTensor(value, data_begin, file_bytes - data_begin, fail));
  }

  std::vector<std::pair<const std::string, Tensor>*> order;
  for (auto& item : tensors_) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t at = data_begin;
  for (const auto* item : order) {
    if (item->second.begin < at) Fail("tensor " + item->first + " overlaps the one before it");
    if (item->second.begin > at) Fail("there is a hole before tensor " + item->first);
    at = item->second.end;
  }
  if (at != file_bytes) {
    Fail("has " + std::to_string(file_bytes - at) + " extra bytes after its last tensor");
  }
}

}  // namespace dslaunch
