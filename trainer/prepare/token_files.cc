#include "trainer/prepare/token_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/base/mapped_file.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr int64_t kShortTokensBelow = 65500;
constexpr uint8_t kUint16Code = 8;
constexpr uint8_t kInt32Code = 4;
constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr size_t kBufferBytes = 1 << 16;

constexpr char kDataPart[] = ".bin.partial";
constexpr char kIndexPart[] = ".idx.partial";
constexpr char kLengthsPart[] = ".lengths.partial";

// Combines small writes to a file into large ones.
class Buffered {
 public:
  explicit Buffered(NewFile& file) : file_(file) {}

  template <class T>
  void Add(T value) {
    buffer_.append(reinterpret_cast<const char*>(&value), sizeof value);
    if (buffer_.size() >= kBufferBytes) Flush();
  }
  void Flush() {
    file_.Write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }

 private:
  NewFile& file_;
  std::string buffer_;
};

// Creates a temporary file, and replaces a file of this name that an earlier run has left.
NewFile MakePart(const std::string& path) {
  std::remove(path.c_str());
  return NewFile(path);
}

void Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  throw TrainError(ExitCode::kIo, to + ": cannot be written: " + std::strerror(errno));
}

}  // namespace

TokenFiles::TokenFiles(std::string prefix, int64_t vocab_size)
    : prefix_(std::move(prefix)),
      short_(vocab_size < kShortTokensBelow),
      data_(MakePart(prefix_ + kDataPart)),
      lengths_(MakePart(prefix_ + kLengthsPart)) {}

TokenFiles::~TokenFiles() {
  for (const char* part : {kDataPart, kIndexPart, kLengthsPart}) {
    std::remove((prefix_ + part).c_str());
  }
}

void TokenFiles::Append(std::span<const int32_t> ids) {
  tokens_ += static_cast<int64_t>(ids.size());
  if (!short_) return data_->Write(ids.data(), ids.size_bytes());
  const std::vector<uint16_t> narrow(ids.begin(), ids.end());
  data_->Write(narrow.data(), narrow.size() * sizeof(uint16_t));
}

void TokenFiles::EndDocument() {
  const int64_t length = tokens_ - document_begin_;
  if (length > std::numeric_limits<int32_t>::max()) {
    RefuseInput("document " + std::to_string(documents_) + " has " + std::to_string(length) +
                " tokens; at most 2147483647 fit in a file of Megatron's format; divide it");
  }
  const auto narrow = static_cast<int32_t>(length);
  length_buffer_.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  if (length_buffer_.size() >= kBufferBytes) {
    lengths_->Write(length_buffer_.data(), length_buffer_.size());
    length_buffer_.clear();
  }
  ++documents_;
  document_begin_ = tokens_;
}

void TokenFiles::WriteIndex() {
  lengths_->Write(length_buffer_.data(), length_buffer_.size());
  lengths_->Finish();
  NewFile file = MakePart(prefix_ + kIndexPart);
  file.Write(kMagic.data(), kMagic.size());
  Buffered out(file);
  out.Add(kVersion);
  out.Add(short_ ? kUint16Code : kInt32Code);
  out.Add(static_cast<uint64_t>(documents_));      // number of sequences
  out.Add(static_cast<uint64_t>(documents_) + 1);  // number of document boundaries
  out.Flush();
  if (documents_ > 0) {
    const MappedFile lengths(prefix_ + kLengthsPart);
    file.Write(lengths.bytes().data(), lengths.bytes().size());
    uint64_t begin = 0;
    for (size_t i = 0; i < static_cast<size_t>(documents_); ++i) {
      out.Add(begin);
      begin += static_cast<uint64_t>(
                   LittleEndianAt<int32_t>(lengths.bytes().data() + i * sizeof(int32_t))) *
               token_bytes();
    }
  }
  for (int64_t i = 0; i <= documents_; ++i) out.Add(i);
  out.Flush();
  file.Finish();
}

void TokenFiles::Finish() {
  data_->Finish();
  WriteIndex();
  // The data is renamed before the index, so that a reader that finds an index also finds its
  // tokens. This does not hold while existing files are being replaced.
  Rename(prefix_ + kDataPart, DataPath(prefix_));
  Rename(prefix_ + kIndexPart, IndexPath(prefix_));
  const std::string folder = std::filesystem::path(prefix_).parent_path();
  SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace dslaunch
