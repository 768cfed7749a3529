#include "trainer/foreign/archive_field.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/text/sanitize.h"
#include "trainer/base/input_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

constexpr double kMaxUpdates = 1e15;  // limit below which doubles represent all whole numbers

bool IsSequenceType(PickleType type) {
  return type == PickleType::kTuple || type == PickleType::kList;
}

// Appends the first two ints in `value`, also from nested tuples. The recursion ends because the
// pickle reader limits the depth.
void AppendInts(PickleValue value, std::vector<int64_t>* ints) {
  if (const auto number = value.Int()) {
    ints->push_back(*number);
  } else if (IsSequenceType(value.type())) {
    for (size_t i = 0; i < value.size() && ints->size() < 2; ++i) AppendInts(value.item(i), ints);
  }
}

template <class T>
double NumberAt(const uint64_t bits) {
  T number;
  std::memcpy(&number, &bits, sizeof(T));
  return static_cast<double>(number);
}

std::optional<double> NumberOf(const std::string& dtype, uint64_t bits) {
  static_assert(std::endian::native == std::endian::little);
  if (dtype == "F32") return NumberAt<float>(bits);
  if (dtype == "F64") return NumberAt<double>(bits);
  if (dtype == "I64") return NumberAt<int64_t>(bits);
  if (dtype == "I32") return NumberAt<int32_t>(bits);
  if (dtype == "BF16") return NumberAt<float>((bits & 0xffff) << 16);
  return std::nullopt;
}

}  // namespace

bool ArchiveField::IsSequence() const { return IsSequenceType(value_.type()); }

std::string ArchiveField::KeyOf(std::string_view name) const {
  return key_.empty() ? Truncate(name) : key_ + "." + Truncate(name);
}

std::optional<ArchiveField> ArchiveField::Find(std::string_view key) const {
  const auto found = value_.Find(key);
  if (!found || found->IsNone()) return std::nullopt;
  return ArchiveField(*this, *found, KeyOf(key));
}

std::optional<ArchiveField> ArchiveField::Find(int64_t key) const {
  const auto found = value_.Find(key);
  if (!found || found->IsNone()) return std::nullopt;
  return ArchiveField(*this, *found, key_ + "[" + std::to_string(key) + "]");
}

ArchiveField ArchiveField::At(std::string_view key) const {
  if (const auto found = Find(key)) return *found;
  throw TrainError(ExitCode::kBadInput, archive_->path() + ": there is no " + KeyOf(key));
}

std::vector<ArchiveField> ArchiveField::Items() const {
  if (!IsSequence()) Fail("is not a list");
  std::vector<ArchiveField> items;
  items.reserve(value_.size());
  for (size_t i = 0; i < value_.size(); ++i) {
    items.push_back(ArchiveField(*this, value_.item(i), key_ + "[" + std::to_string(i) + "]"));
  }
  return items;
}

std::vector<std::pair<std::string, ArchiveField>> ArchiveField::Entries() const {
  if (!IsDict()) Fail("is not a dict");
  std::vector<std::pair<std::string, ArchiveField>> entries;
  entries.reserve(value_.size());
  for (size_t i = 0; i < value_.size(); ++i) {
    const auto [key, value] = value_.entry(i);
    const auto name = key.String();
    if (!name) Fail("has a key that is not a text");
    entries.emplace_back(*name, ArchiveField(*this, value, KeyOf(*name)));
  }
  return entries;
}

int64_t ArchiveField::Count() const {
  const auto number = value_.Int();
  if (!number || *number < 0) Fail("is not a count");
  return *number;
}

bool ArchiveField::Bool() const {
  const auto flag = value_.Bool();
  if (!flag) Fail("is neither True nor False");
  return *flag;
}

std::string ArchiveField::Text() const {
  const auto text = value_.String();
  if (!text) Fail("is not a text");
  return std::string(*text);
}

std::optional<double> ArchiveField::FindNumber() const {
  if (const auto number = value_.Int()) return static_cast<double>(*number);
  if (const auto number = value_.Double()) return *number;
  const auto tensor = FindTensor();
  if (!tensor || NumElements(tensor->shape) != 1 || tensor->bytes > sizeof(uint64_t)) {
    return std::nullopt;
  }
  uint64_t bits = 0;
  InputFile(archive_->path()).Read(tensor->begin, &bits, tensor->bytes);
  return NumberOf(tensor->dtype, bits);
}

double ArchiveField::Number() const {
  const auto number = FindNumber();
  if (!number) Fail("is not a number");
  return *number;
}

int64_t ArchiveField::Updates() const {
  const double number = Number();
  if (!(number >= 0 && number < kMaxUpdates)) Fail("is not a count of updates");
  return static_cast<int64_t>(number);
}

int64_t ArchiveField::EnumValue() const {
  if (const auto number = value_.Int()) return *number;
  std::vector<int64_t> ints;
  if (const auto args = value_.args()) AppendInts(*args, &ints);
  if (ints.size() != 1) Fail("is not a value of an enumeration");
  return ints[0];
}

std::vector<int64_t> ArchiveField::Shape() const {
  auto shape = SizesIn(value_);
  if (!shape || !NumElements(*shape)) Fail("is not the shape of a tensor");
  return *std::move(shape);
}

ArchivedTensor ArchiveField::Tensor() const {
  auto tensor = FindTensor();
  if (!tensor) Fail("is not a tensor");
  return *std::move(tensor);
}

void ArchiveField::Fail(const std::string& problem) const {
  throw TrainError(ExitCode::kBadInput,
                   archive_->path() + ": " + (key_.empty() ? "its content" : key_) + " " + problem);
}

}  // namespace dslaunch
