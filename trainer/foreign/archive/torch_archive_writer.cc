#include "trainer/foreign/archive/torch_archive_writer.h"

#include <algorithm>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/torch_dtype.h"

namespace dslaunch {
namespace {

constexpr char kFormatVersion[] = "3\n";  // content of member "version" since PyTorch 1.6

// Writes a dotted name, such as "torch.float32", as a pickled reference to a module's attribute.
void WriteGlobal(PickleWriter& pickle, std::string_view name) {
  const size_t dot = name.rfind('.');
  pickle.Global(name.substr(0, dot), name.substr(dot + 1));
}

void WriteNumbers(PickleWriter& pickle, const std::vector<int64_t>& numbers) {
  pickle.BeginTuple();
  for (const int64_t number : numbers) pickle.Int(number);
  pickle.EndTuple();
}

std::vector<int64_t> RowMajorStride(const std::vector<int64_t>& shape) {
  std::vector<int64_t> stride(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    stride[i - 1] = stride[i] * std::max<int64_t>(shape[i], 1);
  }
  return stride;
}

}  // namespace

void ArchivedObject::Tensor(const std::string& dtype, const std::vector<int64_t>& shape) {
  const TorchDtype& names = *FindTorchDtype(&TorchDtype::name, dtype);
  const bool is_typed = !names.storage.empty();
  const int64_t elements = NumElements(shape).value();
  const auto width = static_cast<int64_t>(DtypeBytes(dtype).value());
  WriteGlobal(*this,
              is_typed ? "torch._utils._rebuild_tensor_v2" : "torch._utils._rebuild_tensor_v3");
  BeginTuple();
  BeginTuple();
  String("storage");
  WriteGlobal(*this, is_typed ? names.storage : "torch.storage.UntypedStorage");
  String(std::to_string(tensor_bytes_.size()));
  String("cpu");
  Int(is_typed ? elements : elements * width);
  EndTuple();
  Reference();
  Int(0);  // offset
  WriteNumbers(*this, shape);
  WriteNumbers(*this, RowMajorStride(shape));
  Bool(false);                                    // requires_grad
  WriteGlobal(*this, "collections.OrderedDict");  // hooks
  BeginTuple();
  EndTuple();
  Reduce();
  if (!is_typed) WriteGlobal(*this, names.dtype);
  EndTuple();
  Reduce();
  tensor_bytes_.push_back(static_cast<uint64_t>(elements * width));
}

TorchArchiveWriter::TorchArchiveWriter(NewFile& file, const std::string& name,
                                       ArchivedObject object)
    : zip_(file), name_(name), tensor_bytes_(object.tensor_bytes()) {
  const auto write = [&](const std::string& member, const std::string& content) {
    zip_.Begin(name_ + "/" + member, content.size());
    zip_.Write(content.data(), content.size());
  };
  write("data.pkl", object.Take());
  write("byteorder", "little");
  write("version", kFormatVersion);
}

void TorchArchiveWriter::BeginTensor() {
  zip_.Begin(name_ + "/data/" + std::to_string(begun_), tensor_bytes_.at(begun_));
  ++begun_;
}

void TorchArchiveWriter::Write(const void* data, size_t bytes) {
  const char* rest = static_cast<const char*>(data);
  while (bytes > 0) {
    if (zip_.left() == 0) BeginTensor();
    const size_t now = std::min<uint64_t>(bytes, zip_.left());
    zip_.Write(rest, now);
    rest += now;
    bytes -= now;
  }
}

uint64_t TorchArchiveWriter::Finish() {
  // Tensors without elements get no call of Write(), so the last ones are begun now.
  while (begun_ < tensor_bytes_.size()) BeginTensor();
  return zip_.Finish();
}

}  // namespace dslaunch
