#include "trainer/foreign/archive/torch_archive.h"

#include <algorithm>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/torch_dtype.h"
#include "trainer/foreign/archive/zip_directory.h"

namespace dslaunch {
namespace {

constexpr char kPickle[] = "data.pkl";
constexpr size_t kMaxDimensions = 64;
// Maximum depth of nested wrappers, such as a Parameter within a class.
constexpr int kMaxWrappers = 8;
constexpr uint64_t kMaxRepeatedBytes = uint64_t{16} << 20;

// Returns item `i` of a tuple; nullopt if the value is not a tuple or the tuple is too short.
std::optional<PickleValue> ItemOf(const std::optional<PickleValue>& tuple, size_t i) {
  if (!tuple || tuple->type() != PickleType::kTuple || i >= tuple->size()) return std::nullopt;
  return tuple->item(i);
}

// A function, and the arguments that unpickling would pass to it.
struct Call {
  std::string_view function;
  std::optional<PickleValue> args;
};

// Returns the call that constructs the tensor in `value`, without its wrappers. `function` is empty
// if `value` contains no such call.
Call TensorCall(PickleValue value) {
  Call call = {value.type() == PickleType::kObject ? value.global() : "", value.args()};
  for (int i = 0; i < kMaxWrappers; ++i) {
    if (call.function == "torch._utils._rebuild_parameter" ||
        call.function == "torch._utils._rebuild_parameter_with_state") {
      const std::optional<PickleValue> data = ItemOf(call.args, 0);
      if (!data || data->type() != PickleType::kObject) return {};
      call = {data->global(), data->args()};
    } else if (call.function == "torch._tensor._rebuild_from_type_v2") {
      const std::optional<PickleValue> function = ItemOf(call.args, 0);
      if (!function) return {};
      call = {function->global(), ItemOf(call.args, 2)};
    } else {
      return call;
    }
  }
  return {};
}

// Returns whether all elements of a tensor are among the first `in_storage` elements of its
// storage. `offset` is the index of the first element. Precondition: the tensor has elements.
bool IsInside(int64_t offset, const std::vector<int64_t>& shape, const std::vector<int64_t>& stride,
              int64_t in_storage) {
  int64_t last = offset;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, stride[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return false;
    }
  }
  return last < in_storage;
}

bool IsRowMajor(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  int64_t elements = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    if (shape[i - 1] != 1 && stride[i - 1] != elements) return false;
    elements *= shape[i - 1];
  }
  return true;
}

}  // namespace

std::optional<std::vector<int64_t>> SizesIn(std::optional<PickleValue> value) {
  if (value && value->global() == "torch.Size") value = ItemOf(value->args(), 0);
  const PickleType type = value ? value->type() : PickleType::kNone;
  if ((type != PickleType::kTuple && type != PickleType::kList) || value->size() > kMaxDimensions) {
    return std::nullopt;
  }
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < value->size(); ++i) {
    const std::optional<int64_t> size = value->item(i).Int();
    if (!size || *size < 0) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

TorchArchive::TorchArchive(const std::string& path, uint64_t begin, uint64_t size) : file_(path) {
  if (begin > file_.bytes() || size > file_.bytes() - begin) {
    Fail("ends before byte " + std::to_string(begin + size));
  }
  ReadMembers(begin, size == 0 ? file_.bytes() : begin + size);
  if (members_.contains("byteorder") && ReadMember("byteorder", 16) != "little") {
    Fail("its numbers are big-endian; load and save it on a little-endian machine");
  }
  const PickleLimits limits;
  Result<Pickle> pickle =
      Pickle::Read(ReadMember(kPickle, limits.bytes), path + ": " + kPickle, limits);
  if (!pickle.ok()) throw TrainError(pickle.error().code, pickle.error().message);
  pickle_ = *std::move(pickle);
}

void TorchArchive::Fail(const std::string& problem) const { RefuseInput(path() + ": " + problem); }

void TorchArchive::ReadMembers(uint64_t begin, uint64_t end) {
  if (end - begin < 4)
    Fail("has " + std::to_string(end - begin) + " bytes, too few for an archive");
  unsigned char head[4];
  file_.Read(begin, head, sizeof head);
  if (head[0] != 'P' || head[1] != 'K') {
    Fail(
        "is not a zip archive, as torch.save writes since PyTorch 1.6; load the file and save it "
        "again with a newer PyTorch");
  }
  std::string folder;
  for (const ZipMember& member : ReadZipDirectory(file_, begin, end)) {
    const size_t slash = member.name.find('/');
    if (slash == std::string::npos ||
        (!members_.empty() && member.name.substr(0, slash) != folder)) {
      Fail("member " + Quoted(member.name) + " is not in the folder of the others");
    }
    folder = member.name.substr(0, slash);
    members_.emplace(member.name.substr(slash + 1), Member{member.begin, member.bytes});
  }
}

std::string TorchArchive::ReadMember(std::string_view name, uint64_t max_bytes) const {
  const auto found = members_.find(name);
  if (found == members_.end()) Fail("has no member " + std::string(name));
  const Member& member = found->second;
  if (member.bytes > max_bytes) {
    Fail("its member " + std::string(name) + " has " + std::to_string(member.bytes) +
         " bytes; at most " + std::to_string(max_bytes) + " are read");
  }
  std::string content(member.bytes, '\0');
  file_.Read(member.begin, content.data(), content.size());
  return content;
}

TorchArchive::Storage TorchArchive::StorageOf(PickleValue reference) const {
  const std::optional<PickleValue> id = reference.id();
  const auto text_at = [&](size_t i) {
    const std::optional<PickleValue> item = ItemOf(id, i);
    return item ? item->String() : std::nullopt;
  };
  const std::optional<PickleValue> type = ItemOf(id, 1);
  const std::optional<std::string_view> key = text_at(2);
  const std::optional<PickleValue> size = ItemOf(id, 4);
  const std::optional<int64_t> elements = size ? size->Int() : std::nullopt;
  if (text_at(0) != "storage" || !type || !key || !elements || *elements < 0) {
    Fail("a tensor without a storage");
  }
  const std::string which = "storage " + Quoted(*key);
  const auto found = members_.find("data/" + std::string(*key));
  if (found == members_.end()) Fail(which + " has no member");
  const bool is_untyped = type->global() == "torch.storage.UntypedStorage";
  const TorchDtype* names = FindTorchDtype(&TorchDtype::storage, type->global());
  if (!is_untyped && names == nullptr) {
    Fail(which + " is a " + Quoted(type->global()) + ", which is not supported");
  }
  const std::string dtype(is_untyped ? "" : names->name);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(*elements),
                             is_untyped ? 1 : DtypeBytes(dtype).value(), &bytes) ||
      bytes != found->second.bytes) {
    Fail(which + " has " + std::to_string(*elements) + " elements, and its member " +
         std::to_string(found->second.bytes) + " bytes");
  }
  return {dtype, found->second};
}

std::optional<ArchivedTensor> TorchArchive::Tensor(PickleValue value) const {
  const Call call = TensorCall(value);
  const bool has_dtype = call.function == "torch._utils._rebuild_tensor_v3";
  if (!has_dtype && call.function != "torch._utils._rebuild_tensor_v2" &&
      call.function != "torch._utils._rebuild_tensor") {
    return std::nullopt;
  }
  const std::optional<PickleValue> reference = ItemOf(call.args, 0);
  const std::optional<PickleValue> offset_item = ItemOf(call.args, 1);
  const std::optional<int64_t> offset = offset_item ? offset_item->Int() : std::nullopt;
  const std::optional<std::vector<int64_t>> shape = SizesIn(ItemOf(call.args, 2));
  const std::optional<std::vector<int64_t>> stride = SizesIn(ItemOf(call.args, 3));
  if (!reference || !offset || *offset < 0 || !shape || !stride ||
      stride->size() != shape->size()) {
    Fail("a tensor whose offset, shape or stride is impossible");
  }
  Storage storage = StorageOf(*reference);
  if (has_dtype) {
    const std::optional<PickleValue> dtype = ItemOf(call.args, 6);
    const std::string_view name = dtype ? dtype->global() : "";
    const TorchDtype* names = FindTorchDtype(&TorchDtype::dtype, name);
    if (names == nullptr) Fail("a tensor of " + Quoted(name) + ", which is not supported");
    storage.dtype = names->name;
  } else if (storage.dtype.empty()) {
    Fail("a tensor without a dtype");
  }
  const uint64_t width = DtypeBytes(storage.dtype).value();
  const auto in_storage = static_cast<int64_t>(storage.member.bytes / width);
  const std::optional<int64_t> elements = NumElements(*shape);
  if (!elements || (*elements > 0 && !IsInside(*offset, *shape, *stride, in_storage))) {
    Fail("a tensor has elements outside of its storage, which has " + std::to_string(in_storage));
  }
  ArchivedTensor tensor = {storage.dtype, *shape, {}, storage.member.begin, 0};
  if (*elements == 0) return tensor;
  if (__builtin_mul_overflow(static_cast<uint64_t>(*elements), width, &tensor.bytes) ||
      (*elements > in_storage && tensor.bytes > kMaxRepeatedBytes)) {
    Fail("a tensor repeats the elements of its storage, and is too large for that");
  }
  tensor.begin += static_cast<uint64_t>(*offset) * width;
  if (!IsRowMajor(*shape, *stride)) tensor.stride = *stride;
  return tensor;
}

bool IsTorchArchive(const std::string& path) {
  try {
    const InputFile file(path);
    unsigned char head[4] = {};
    if (file.bytes() >= sizeof head) file.Read(0, head, sizeof head);
    return head[0] == 'P' && head[1] == 'K' && head[2] == 3 && head[3] == 4;
  } catch (const TrainError&) {
    return false;
  }
}

}  // namespace dslaunch
