// Reads values of a torch.save archive together with their paths, so that every error names the
// file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/foreign/archive/torch_archive.h"

namespace dslaunch {

// A value of an archive and its key. The archive must outlive this object. Each function that
// returns a value of a certain type throws kBadInput if the value has another type: "FILE:
// KEY.KEY[2] is not ...".
class ArchiveField {
 public:
  // Refers to the root of the archive.
  explicit ArchiveField(const TorchArchive& archive) : archive_(&archive), value_(archive.root()) {}

  PickleValue value() const { return value_; }
  // Returns the path of the value, such as "optimizer_state_dict.zero_stage".
  const std::string& key() const { return key_; }
  const TorchArchive& archive() const { return *archive_; }

  bool IsDict() const { return value_.type() == PickleType::kDict; }
  bool IsSequence() const;  // returns whether the value is a tuple or a list
  // Returns the value of a key of a dict or of an object's state; nullopt if the key is missing or
  // its value is None.
  std::optional<ArchiveField> Find(std::string_view key) const;
  std::optional<ArchiveField> Find(int64_t key) const;
  // Returns the value of a key like Find(). Throws kBadInput if the key is missing or its value is
  // None.
  ArchiveField At(std::string_view key) const;
  // Returns the items of a tuple or list.
  std::vector<ArchiveField> Items() const;
  // Returns the entries of a dict, in the dict's order. Throws kBadInput if a key is not a string.
  std::vector<std::pair<std::string, ArchiveField>> Entries() const;

  int64_t Count() const;  // returns the value, an int that is at least 0
  bool Bool() const;
  std::string Text() const;
  // Returns an int, a float, or the element of a tensor that has only one element, in any of the
  // common dtypes; nullopt for other values.
  std::optional<double> FindNumber() const;
  // Returns the number of FindNumber(). Throws kBadInput for other values.
  double Number() const;
  int64_t Updates() const;  // returns a number of updates, in any form that FindNumber() accepts
  // Returns the value if it is an int. If the value is an object, such as an enum, returns the only
  // int among its arguments.
  int64_t EnumValue() const;
  // Returns the sizes in a torch.Size, a tuple or a list.
  std::vector<int64_t> Shape() const;
  // Returns the value as a tensor; nullopt for other values.
  std::optional<ArchivedTensor> FindTensor() const { return archive_->Tensor(value_); }
  // Returns the value as a tensor. Throws kBadInput for other values.
  ArchivedTensor Tensor() const;

  // Throws kBadInput with the message "FILE: KEY PROBLEM".
  [[noreturn]] void Fail(const std::string& problem) const;

 private:
  ArchiveField(const ArchiveField& parent, PickleValue value, std::string key)
      : archive_(parent.archive_), value_(value), key_(std::move(key)) {}
  std::string KeyOf(std::string_view name) const;

  const TorchArchive* archive_;
  PickleValue value_;
  std::string key_;
};

}  // namespace dslaunch
