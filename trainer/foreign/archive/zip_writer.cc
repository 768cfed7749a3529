#include "trainer/foreign/archive/zip_writer.h"

#include <algorithm>

#include "trainer/base/train_error.h"
#include "trainer/foreign/archive/zip_format.h"

namespace dslaunch {
namespace {

constexpr uint64_t kAlignment = 64;  // first version of the zip format that supports zip64
constexpr uint16_t kVersion = 45;    // first version of the format that has zip64
// The id of an extra field that readers ignore. torch.save uses the same id for padding.
constexpr uint16_t kPaddingField = 0x4246;
constexpr uint64_t kFieldHeaderBytes = 4;

// Builds the bytes of a record, field by field.
class RecordBytes {
 public:
  template <class Number>
  RecordBytes& Add(Number number) {
    for (size_t i = 0; i < sizeof number; ++i) {
      bytes_ += static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
    }
    return *this;
  }
  // Adds a number, or all ones if the number is too large, so that readers use zip64's
  // fields.
  template <class Number>
  RecordBytes& AddCapped(uint64_t number) {
    return Add(static_cast<Number>(std::min<uint64_t>(number, static_cast<Number>(-1))));
  }
  RecordBytes& AddText(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

bool IsLarge(uint64_t number) { return number >= UINT32_MAX; }

}  // namespace

void ZipWriter::Put(std::string_view bytes) {
  file_.Write(bytes.data(), bytes.size());
  at_ += bytes.size();
}

void ZipWriter::Begin(const std::string& name, uint64_t bytes) {
  EndMember();
  members_.push_back({name, at_, bytes, 0});
  RecordBytes extra;
  if (IsLarge(bytes)) {
    extra.Add(zip::kZip64Field).Add(uint16_t{16}).Add(uint64_t{0}).Add(uint64_t{0});
  }
  const uint64_t unpadded =
      at_ + zip::kHeaderBytes + name.size() + extra.bytes().size() + kFieldHeaderBytes;
  const uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  extra.Add(kPaddingField).Add(static_cast<uint16_t>(padding)).AddText(std::string(padding, '\0'));
  const uint32_t size = IsLarge(bytes) ? UINT32_MAX : 0;
  RecordBytes header;
  header.Add(zip::kHeaderMark).Add(kVersion).Add(uint16_t{zip::kSumAfter | zip::kUtf8});
  // Compression method 0 (stored) and no modification time.
  header.Add(uint16_t{0}).Add(uint32_t{0});
  header.Add(uint32_t{0}).Add(size).Add(size);
  header.Add(static_cast<uint16_t>(name.size())).Add(static_cast<uint16_t>(extra.bytes().size()));
  Put(header.AddText(name).AddText(extra.bytes()).bytes());
  left_ = bytes;
  is_open_ = true;
}

void ZipWriter::Write(const void* data, size_t bytes) {
  if (!is_open_ || bytes > left_) {
    throw TrainError(ExitCode::kInternal, "internal error: a member of an archive is too long");
  }
  members_.back().crc32 = Crc32(data, bytes, members_.back().crc32);
  Put({static_cast<const char*>(data), bytes});
  left_ -= bytes;
}

void ZipWriter::EndMember() {
  if (!is_open_) return;
  if (left_ > 0) {
    throw TrainError(ExitCode::kInternal, "internal error: a member of an archive is too short");
  }
  const Member& member = members_.back();
  RecordBytes sum;
  sum.Add(zip::kSumMark).Add(member.crc32);
  for (int i = 0; i < 2; ++i) {  // stored size, then original size, which are equal
    if (IsLarge(member.bytes)) {
      sum.Add(member.bytes);
    } else {
      sum.Add(static_cast<uint32_t>(member.bytes));
    }
  }
  Put(sum.bytes());
  is_open_ = false;
}

uint64_t ZipWriter::Finish() {
  EndMember();
  const uint64_t begin = at_;
  for (const Member& member : members_) {
    RecordBytes numbers;
    if (IsLarge(member.bytes)) numbers.Add(member.bytes).Add(member.bytes);
    if (IsLarge(member.header)) numbers.Add(member.header);
    RecordBytes extra;
    if (const auto size = static_cast<uint16_t>(numbers.bytes().size()); size > 0) {
      extra.Add(zip::kZip64Field).Add(size).AddText(numbers.bytes());
    }
    RecordBytes entry;
    entry.Add(zip::kEntryMark).Add(kVersion).Add(kVersion);
    entry.Add(uint16_t{zip::kSumAfter | zip::kUtf8}).Add(uint16_t{0}).Add(uint32_t{0});
    entry.Add(member.crc32).AddCapped<uint32_t>(member.bytes).AddCapped<uint32_t>(member.bytes);
    entry.Add(static_cast<uint16_t>(member.name.size()));
    entry.Add(static_cast<uint16_t>(extra.bytes().size()));
    entry.Add(uint16_t{0}).Add(uint16_t{0}).Add(uint16_t{0}).Add(uint32_t{0});
    Put(entry.AddCapped<uint32_t>(member.header)
            .AddText(member.name)
            .AddText(extra.bytes())
            .bytes());
  }
  const uint64_t bytes = at_ - begin;
  const uint64_t members = members_.size();
  RecordBytes end;
  if (IsLarge(begin) || IsLarge(bytes) || members >= UINT16_MAX) {
    const uint64_t end64 = at_;
    end.Add(zip::kEnd64Mark).Add(zip::kEnd64Bytes - 12).Add(kVersion).Add(kVersion);
    end.Add(uint32_t{0}).Add(uint32_t{0}).Add(members).Add(members).Add(bytes).Add(begin);
    end.Add(zip::kLocatorMark).Add(uint32_t{0}).Add(end64).Add(uint32_t{1});
  }
  end.Add(zip::kEndMark).Add(uint32_t{0});
  end.AddCapped<uint16_t>(members).AddCapped<uint16_t>(members);
  end.AddCapped<uint32_t>(bytes).AddCapped<uint32_t>(begin).Add(uint16_t{0});
  Put(end.bytes());
  return at_;
}

}  // namespace dslaunch
