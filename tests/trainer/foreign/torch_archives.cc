// Reads the files whose paths are on standard input, one per line, and prints a line of JSON for
// each: {"value": ...}, or {"refused": reason}. A file *.pkl is a pickle. Any other file is an
// archive of torch.save, whose tensors are printed as {"tensor": [dtype, shape, CRC-32 of its
// row-major bytes]}. torch_archive_test.py describes the forms of other values.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/text/hex.h"
#include "trainer/base/crc32.h"
#include "trainer/base/mapped_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/archive/torch_archive_writer.h"

namespace dslaunch {
namespace {

// Returns the elements of a tensor, which may have strides, in row-major order.
std::string BytesOf(const ArchivedTensor& tensor, const InputFile& file) {
  std::string bytes(tensor.bytes, '\0');
  if (tensor.stride.empty()) {
    file.Read(tensor.begin, bytes.data(), bytes.size());
    return bytes;
  }
  const size_t width = DtypeBytes(tensor.dtype).value();
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    size_t rest = i;
    size_t place = 0;
    for (size_t dim = tensor.shape.size(); dim > 0; --dim) {
      const auto size = static_cast<size_t>(tensor.shape[dim - 1]);
      place += rest % size * static_cast<size_t>(tensor.stride[dim - 1]);
      rest /= size;
    }
    file.Read(tensor.begin + place * width, &bytes[i * width], width);
  }
  return bytes;
}

nlohmann::json Show(PickleValue value, const TorchArchive* archive);

nlohmann::json Items(PickleValue value, const TorchArchive* archive) {
  nlohmann::json items = nlohmann::json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    if (value.has_entries()) {
      items.push_back({Show(value.entry(i).first, archive), Show(value.entry(i).second, archive)});
    } else {
      items.push_back(Show(value.item(i), archive));
    }
  }
  return items;
}

nlohmann::json ShowObject(PickleValue value, const TorchArchive* archive) {
  if (const auto tensor = archive ? archive->Tensor(value) : std::nullopt) {
    const std::string bytes = BytesOf(*tensor, InputFile(archive->path()));
    return {{"tensor", {tensor->dtype, tensor->shape, Crc32(bytes.data(), bytes.size())}}};
  }
  nlohmann::json object = {{"object", value.global()}, {"args", Show(*value.args(), archive)}};
  if (const auto state = value.state()) object["state"] = Show(*state, archive);
  if (value.size() > 0) object["items"] = Items(value, archive);
  return object;
}

nlohmann::json Show(PickleValue value, const TorchArchive* archive) {
  switch (value.type()) {
    case PickleType::kNone:
      return nullptr;
    case PickleType::kBool:
      return *value.Bool();
    case PickleType::kInt:
      return value.Int() ? nlohmann::json(*value.Int()) : nlohmann::json("too large");
    case PickleType::kDouble:
      return {{"double", *value.Double()}};
    case PickleType::kString:
      return *value.String();
    case PickleType::kBytes:
      return {{"bytes", ToHex(*value.Bytes())}};
    case PickleType::kTuple:
      return {{"tuple", Items(value, archive)}};
    case PickleType::kList:
      return Items(value, archive);
    case PickleType::kSet:
      return {{"set", Items(value, archive)}};
    case PickleType::kDict:
      return {{"dict", Items(value, archive)}};
    case PickleType::kGlobal:
      return {{"global", value.global()}};
    case PickleType::kReference:
      return {{"reference", Show(*value.id(), archive)}};
    case PickleType::kObject:
      return ShowObject(value, archive);
  }
  return nullptr;
}

// Writes `value` as the next value of `object`, and appends the bytes of its tensors to `tensors`.
void Copy(PickleValue value, const TorchArchive& archive, ArchivedObject& object,
          std::string& tensors) {
  if (const auto tensor = archive.Tensor(value)) {
    object.Tensor(tensor->dtype, tensor->shape);
    tensors += BytesOf(*tensor, InputFile(archive.path()));
    return;
  }
  const auto items = [&] {
    for (size_t i = 0; i < value.size(); ++i) {
      if (value.has_entries()) Copy(value.entry(i).first, archive, object, tensors);
      Copy(value.has_entries() ? value.entry(i).second : value.item(i), archive, object, tensors);
    }
  };
  if (value.type() == PickleType::kTuple) {
    object.BeginTuple();
    items();
    object.EndTuple();
  } else if (value.type() == PickleType::kList) {
    object.BeginList();
    items();
    object.EndList();
  } else if (value.type() == PickleType::kDict) {
    object.BeginDict();
    items();
    object.EndDict();
  } else if (value.Bool()) {
    object.Bool(*value.Bool());
  } else if (value.Int()) {
    object.Int(*value.Int());
  } else if (value.Double()) {
    object.Double(*value.Double());
  } else if (value.String()) {
    object.String(*value.String());
  } else if (value.IsNone()) {
    object.None();
  } else {
    RefuseInput("a value that cannot be copied");
  }
}

void Write(const TorchArchive& archive, const std::string& path) {
  ArchivedObject object;
  std::string tensors;
  Copy(archive.root(), archive, object, tensors);
  NewFile file(path);
  TorchArchiveWriter writer(file, "archive", std::move(object));
  // The blocks have other sizes than the tensors.
  for (size_t at = 0; at < tensors.size(); at += 7) {
    writer.Write(&tensors[at], std::min<size_t>(7, tensors.size() - at));
  }
  writer.Finish();
  file.Finish();
}

nlohmann::json Read(std::string path) {
  try {
    const bool is_written = path.starts_with("write ");
    if (is_written) path.erase(0, 6);
    if (!path.ends_with(".pkl")) {
      const TorchArchive archive(path);
      if (is_written) Write(archive, path + ".written");
      return {{"value", Show(archive.root(), &archive)}};
    }
    const MappedFile file(path);
    const Result<Pickle> pickle = Pickle::Read(
        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
    if (!pickle.ok()) return {{"refused", pickle.error().message}};
    return {{"value", Show(pickle->root(), nullptr)}};
  } catch (const TrainError& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace
}  // namespace dslaunch

int main() {
  std::string path;
  while (std::getline(std::cin, path)) std::cout << dslaunch::Read(path).dump() << '\n';
}
