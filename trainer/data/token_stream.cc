#include "trainer/data/token_stream.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "trainer/base/train_error.h"
#include "trainer/data/data_file.h"

namespace dslaunch {
namespace {

constexpr size_t kLlmcHeaderBytes = 256 * sizeof(int32_t);
constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kMegatronVersion = 1;
constexpr size_t kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;

// The index of a Megatron data set, with the location of each sequence in the data file.
struct MegatronIndex {
  int type_code = 0;
  uint64_t sequences = 0;
  const uint8_t* lengths = nullptr;   // number of tokens of each sequence, int32
  const uint8_t* pointers = nullptr;  // byte offset of each sequence in the data file, int64
};

MegatronIndex ParseMegatronIndex(const MappedFile& file) {
  const std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() < kMegatronHeaderBytes ||
      std::memcmp(bytes.data(), kMegatronMagic.data(), kMegatronMagic.size()) != 0) {
    RefuseDataFile(
        file.path(),
        "is not the index of a Megatron data set (MMIDIDX); if the .bin file is of another "
        "kind, move it to a folder without a .idx file of its name");
  }
  const uint8_t* at = bytes.data() + kMegatronMagic.size();
  const auto version = LittleEndianAt<uint64_t>(at);
  if (version != kMegatronVersion) {
    RefuseDataFile(file.path(), "is a Megatron index of version " + std::to_string(version) +
                                    "; version 1 is required");
  }
  MegatronIndex index;
  index.type_code = at[8];
  index.sequences = LittleEndianAt<uint64_t>(at + 9);
  const auto documents = LittleEndianAt<uint64_t>(at + 17);
  // The arithmetic below must not overflow, so the counts are compared with the file's size first.
  const uint64_t rest = bytes.size() - kMegatronHeaderBytes;
  const uint64_t sequence_bytes = sizeof(int32_t) + sizeof(int64_t);
  if (index.sequences > rest / sequence_bytes || documents > rest / sizeof(int64_t) ||
      index.sequences * sequence_bytes + documents * sizeof(int64_t) > rest) {
    RefuseDataFile(file.path(), "declares " + std::to_string(index.sequences) + " sequences and " +
                                    std::to_string(documents) +
                                    " documents, but ends before them: it has " +
                                    std::to_string(bytes.size()) + " bytes; copy the file again");
  }
  // In multimodal data, a byte with the mode of each sequence follows the documents.
  const uint64_t after = rest - index.sequences * sequence_bytes - documents * sizeof(int64_t);
  if (after != 0 && after != index.sequences) {
    RefuseDataFile(file.path(), "has " + std::to_string(after) +
                                    " extra bytes after its documents; the file is damaged");
  }
  index.lengths = bytes.data() + kMegatronHeaderBytes;
  index.pointers = index.lengths + index.sequences * sizeof(int32_t);

  // Documents are consecutive ranges of sequences, so reading the sequences in order also reads the
  // documents in order.
  const uint8_t* ends = index.pointers + index.sequences * sizeof(int64_t);
  int64_t last = 0;
  for (uint64_t i = 0; i < documents; ++i) {
    const auto end = LittleEndianAt<int64_t>(ends + i * sizeof(int64_t));
    if (end < last || end > static_cast<int64_t>(index.sequences) || (i == 0 && end != 0)) {
      RefuseDataFile(file.path(), "document boundary " + std::to_string(i) + " is " +
                                      std::to_string(end) + ", after " + std::to_string(last) +
                                      ", of " + std::to_string(index.sequences) +
                                      " sequences; the file is damaged");
    }
    last = end;
  }
  if (last != static_cast<int64_t>(index.sequences)) {
    RefuseDataFile(file.path(), "its documents end at sequence " + std::to_string(last) + " of " +
                                    std::to_string(index.sequences) + "; the file is damaged");
  }
  return index;
}

// Returns the common prefix of the data file's and the index file's paths. `path` may be one of
// these paths or the prefix.
std::string MegatronPrefix(const std::string& path) {
  for (const char* ending : {".bin", ".idx"}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - 4);
  }
  return path;
}

// Returns the number of bytes of a UTF-8 character whose first byte is `first`; 0 if `first` begins
// no character.
size_t CharacterBytes(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

// Returns whether the beginning of `bytes` is UTF-8 without control characters, or has the byte
// order mark of UTF-16. Neither is true of 16-bit token ids: with a vocabulary below 256 * 32, each
// token has a control character, and with a larger vocabulary, nearly every line of tokens has
// bytes that are not UTF-8.
bool LooksLikeText(std::span<const uint8_t> bytes) {
  constexpr size_t kLookedAt = 4096;
  constexpr size_t kTooFew = 16;
  if (bytes.size() < kTooFew) return false;
  if ((bytes[0] == 0xFF && bytes[1] == 0xFE) || (bytes[0] == 0xFE && bytes[1] == 0xFF)) return true;
  bytes = bytes.first(std::min(bytes.size(), kLookedAt));
  constexpr std::string_view kBlanks = "\t\n\r\f";
  for (size_t i = 0; i < bytes.size();) {
    const uint8_t first = bytes[i];
    const size_t length = CharacterBytes(first);
    if (length == 0 || first == 0x7F) return false;
    if (first < ' ' && kBlanks.find(static_cast<char>(first)) == std::string_view::npos) {
      return false;
    }
    for (size_t k = 1; k < length && i + k < bytes.size(); ++k) {
      if ((bytes[i + k] & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

template <typename T>
void DecodeAs(const uint8_t* bytes, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int64_t>(LittleEndianAt<T>(bytes + i * sizeof(T)));
  }
}

}  // namespace

int64_t TokensPerSample(const DataConfig& data, const DataNeeds& needs) {
  if (!HoldsTokens(data.type)) return 0;
  return data.block_size == 0 ? needs.positions : data.block_size;
}

TokenStream TokenStream::OpenText(const std::string& path) {
  TokenStream stream(MappedFile(path), Type::kUint8);
  stream.AddRun(0, static_cast<int64_t>(stream.file_.bytes().size()));
  return stream;
}

TokenStream TokenStream::OpenTokens(const std::string& path) {
  const std::string prefix = MegatronPrefix(path);
  if (FileExists(prefix + ".idx")) return OpenMegatron(prefix + ".idx", prefix + ".bin");

  MappedFile file(path);
  const std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() >= kLlmcHeaderBytes) {
    const auto magic = LittleEndianAt<int32_t>(bytes.data());
    const auto version = LittleEndianAt<int32_t>(bytes.data() + 4);
    const auto tokens = LittleEndianAt<int32_t>(bytes.data() + 8);
    for (const auto& [known_magic, known_version, type] :
         {std::tuple(20240520, 1, Type::kUint16), std::tuple(20240801, 7, Type::kUint32)}) {
      if (magic != known_magic) continue;
      if (version != known_version) {
        RefuseDataFile(path, "is an llm.c file of version " + std::to_string(version) +
                                 "; version " + std::to_string(known_version) + " is required");
      }
      const size_t there = (bytes.size() - kLlmcHeaderBytes) / BytesOf(type);
      if (tokens < 0 || static_cast<size_t>(tokens) != there ||
          (bytes.size() - kLlmcHeaderBytes) % BytesOf(type) != 0) {
        RefuseDataFile(path, "declares " + std::to_string(tokens) + " tokens, but its size of " +
                                 std::to_string(bytes.size()) + " bytes gives " +
                                 std::to_string(there) + "; write the file again");
      }
      TokenStream stream(std::move(file), type);
      stream.AddRun(kLlmcHeaderBytes, tokens);
      return stream;
    }
  }
  if (LooksLikeText(bytes)) {
    RefuseDataFile(path,
                   "is text, not token ids; set data.type text (--set data.type=text), which takes "
                   "each byte as a token, or convert it to token ids");
  }
  if (bytes.size() % sizeof(uint16_t) != 0) {
    RefuseDataFile(
        path, "has " + std::to_string(bytes.size()) +
                  " bytes, which is not a multiple of 2 (uint16 tokens); use data.type text for a "
                  "text file");
  }
  TokenStream stream(std::move(file), Type::kUint16);
  stream.AddRun(0, static_cast<int64_t>(stream.file_.bytes().size() / sizeof(uint16_t)));
  return stream;
}

TokenStream TokenStream::OpenMegatron(const std::string& index_path, const std::string& data_path) {
  const MappedFile index_file(index_path);
  const MegatronIndex index = ParseMegatronIndex(index_file);
  const auto type_of = [&] {
    switch (index.type_code) {
      case 1:
        return Type::kUint8;
      case 4:
        return Type::kInt32;
      case 5:
        return Type::kInt64;
      case 8:
        return Type::kUint16;
    }
    RefuseDataFile(index_path, "its tokens are of type " + std::to_string(index.type_code) +
                                   "; supported: 1 (uint8), 4 (int32), 5 (int64) and 8 (uint16)");
  };
  TokenStream stream(MappedFile(data_path), type_of());
  const uint64_t data_bytes = stream.file_.bytes().size();
  const uint64_t token_bytes = BytesOf(stream.type_);
  for (uint64_t i = 0; i < index.sequences; ++i) {
    const auto length = LittleEndianAt<int32_t>(index.lengths + i * sizeof(int32_t));
    const auto pointer = LittleEndianAt<int64_t>(index.pointers + i * sizeof(int64_t));
    if (length < 0 || pointer < 0 || static_cast<uint64_t>(pointer) > data_bytes ||
        static_cast<uint64_t>(length) >
            (data_bytes - static_cast<uint64_t>(pointer)) / token_bytes) {
      RefuseDataFile(index_path, "sequence " + std::to_string(i) + ", " + std::to_string(length) +
                                     " tokens from byte " + std::to_string(pointer) +
                                     " on, is not in " + data_path + ", which has " +
                                     std::to_string(data_bytes) + " bytes; copy both files again");
    }
    stream.AddRun(static_cast<uint64_t>(pointer), length);
  }
  return stream;
}

size_t TokenStream::BytesOf(Type type) {
  switch (type) {
    case Type::kUint8:
      return 1;
    case Type::kUint16:
      return 2;
    case Type::kInt32:
    case Type::kUint32:
      return 4;
    case Type::kInt64:
      return 8;
  }
  return 0;
}

// Appends `size` tokens at byte `offset` of the file to the stream. Adjacent runs are joined, so a
// data set that was written from beginning to end is a single run, for any number of sequences.
void TokenStream::AddRun(uint64_t offset, int64_t size) {
  if (size == 0) return;
  const auto end = [&](const Run& run) {
    return run.offset + static_cast<uint64_t>(run.size) * BytesOf(type_);
  };
  if (!runs_.empty() && end(runs_.back()) == offset) {
    runs_.back().size += size;
  } else {
    runs_.push_back({size_, size, offset});
  }
  size_ += size;
}

void TokenStream::Read(int64_t begin, std::span<int64_t> out, int64_t vocab_size) const {
  if (begin < 0 || begin > size_ || static_cast<int64_t>(out.size()) > size_ - begin) {
    throw std::out_of_range(path() + ": tokens beyond the end of the stream");
  }
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](int64_t at, const Run& later) { return at < later.begin; });
  std::span<int64_t> rest = out;
  for (int64_t at = begin; !rest.empty(); ++run) {
    const Run& current = *(run - 1);
    const int64_t skip = at - current.begin;
    const auto count = std::min(rest.size(), static_cast<size_t>(current.size - skip));
    Decode(current, skip, rest.first(count));
    rest = rest.subspan(count);
    at += static_cast<int64_t>(count);
  }
  const auto bad = std::find_if(out.begin(), out.end(),
                                [&](int64_t token) { return token < 0 || token >= vocab_size; });
  if (bad != out.end()) {
    RefuseDataFile(path(), "token " + std::to_string(begin + (bad - out.begin())) + " is " +
                               std::to_string(*bad) +
                               "; tokens are from 0 to model.vocab_size - 1, " +
                               std::to_string(vocab_size - 1));
  }
}

// Decodes tokens of a run into `out`. `begin` is the index in the run of the first token.
void TokenStream::Decode(const Run& run, int64_t begin, std::span<int64_t> out) const {
  const uint8_t* bytes =
      file_.bytes().data() + run.offset + static_cast<uint64_t>(begin) * BytesOf(type_);
  switch (type_) {
    case Type::kUint8:
      return DecodeAs<uint8_t>(bytes, out);
    case Type::kUint16:
      return DecodeAs<uint16_t>(bytes, out);
    case Type::kInt32:
      return DecodeAs<int32_t>(bytes, out);
    case Type::kUint32:
      return DecodeAs<uint32_t>(bytes, out);
    case Type::kInt64:
      return DecodeAs<int64_t>(bytes, out);
  }
}

}  // namespace dslaunch
