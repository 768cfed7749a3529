#include "trainer/foreign/archive/zip_directory.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "trainer/base/mapped_file.h"
#include "trainer/base/train_error.h"
#include "trainer/foreign/archive/zip_format.h"

namespace dslaunch {
namespace {

constexpr uint64_t kMaxCommentBytes = UINT16_MAX;
constexpr uint64_t kMaxMembers = 1'000'000;
constexpr uint64_t kMaxNameBytes = 1024;  // maximum bytes of a member's name and its extra fields

[[noreturn]] void Refuse(const InputFile& file, const std::string& problem) {
  RefuseInput(file.path() + ": " + problem);
}

// Reads little-endian numbers at given offsets of a zip record.
class Record {
 public:
  explicit Record(std::string_view bytes) : bytes_(bytes) {}
  template <class Number>
  uint64_t At(size_t offset) const {
    return LittleEndianAt<Number>(reinterpret_cast<const uint8_t*>(&bytes_.at(offset)));
  }

 private:
  std::string_view bytes_;
};

std::string ReadBytes(const InputFile& file, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  file.Read(offset, text.data(), text.size());
  return text;
}

struct Extent {
  uint64_t begin = 0;  // offset of the zip's directory in the file
  uint64_t bytes = 0;
  uint64_t members = 0;
};

// Finds the directory of the zip in bytes [begin, end) of `file`, from the record at the end of the
// zip or from zip64's record if there is one.
Extent FindDirectory(const InputFile& file, uint64_t begin, uint64_t end) {
  const uint64_t tail_bytes =
      std::min(end - begin, zip::kEndBytes + kMaxCommentBytes + zip::kLocatorBytes);
  const uint64_t tail_begin = end - tail_bytes;
  const std::string tail = ReadBytes(file, tail_begin, tail_bytes);
  uint64_t at = tail_bytes < zip::kEndBytes ? 0 : tail_bytes - zip::kEndBytes + 1;
  const Record record(tail);
  do {
    if (at-- == 0) Refuse(file, "is cut off, or is not a zip file: it ends without a directory");
  } while (record.At<uint32_t>(at) != zip::kEndMark ||
           at + zip::kEndBytes + record.At<uint16_t>(at + 20) != tail_bytes);
  Extent extent = {record.At<uint32_t>(at + 16), record.At<uint32_t>(at + 12),
                   record.At<uint16_t>(at + 10)};
  uint64_t limit = tail_begin + at;  // offset at which the directory must end
  if (at >= zip::kLocatorBytes &&
      record.At<uint32_t>(at - zip::kLocatorBytes) == zip::kLocatorMark) {
    limit -= zip::kLocatorBytes;
    const uint64_t place = record.At<uint64_t>(at - zip::kLocatorBytes + 8);
    if (place > limit - begin || limit - begin - place < zip::kEnd64Bytes) {
      Refuse(file, "the zip64 record of its directory is outside of the file");
    }
    limit = begin + place;
    const std::string text = ReadBytes(file, limit, zip::kEnd64Bytes);
    const Record end64(text);
    if (end64.At<uint32_t>(0) != zip::kEnd64Mark) {
      Refuse(file, "the zip64 record of its directory is damaged");
    }
    extent = {end64.At<uint64_t>(48), end64.At<uint64_t>(40), end64.At<uint64_t>(32)};
  }
  if (extent.begin > limit - begin || extent.bytes > limit - begin - extent.begin) {
    Refuse(file, "its directory is outside of the file");
  }
  if (extent.members > kMaxMembers) {
    Refuse(file, "has " + std::to_string(extent.members) + " members; at most " +
                     std::to_string(kMaxMembers) + " are read");
  }
  if (extent.bytes > extent.members * (zip::kEntryBytes + kMaxNameBytes)) {
    Refuse(file, "its directory is larger than its members need");
  }
  extent.begin += begin;
  return extent;
}

bool IsSafeName(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) {
    return false;
  }
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return false;
    at = end + 1;
  }
  return true;
}

// The sizes and the offset of a member. If all bits of a number are ones in the directory, the
// number is stored in the extra field of zip64 instead.
struct Place {
  uint64_t bytes, stored_bytes, header;
};
Place PlaceOf(const Record& entry, std::string_view extra, const auto& refuse) {
  Place place = {entry.At<uint32_t>(24), entry.At<uint32_t>(20), entry.At<uint32_t>(42)};
  while (extra.size() >= 4) {
    const Record field(extra);
    const uint64_t bytes = field.At<uint16_t>(2);
    if (bytes > extra.size() - 4) break;
    if (field.At<uint16_t>(0) == zip::kZip64Field) {
      size_t at = 4;
      for (uint64_t* number : {&place.bytes, &place.stored_bytes, &place.header}) {
        if (*number != UINT32_MAX) continue;
        if (at + 8 > 4 + bytes) refuse("its zip64 field is too short");
        *number = field.At<uint64_t>(at);
        at += 8;
      }
      break;
    }
    extra.remove_prefix(4 + bytes);
  }
  return place;
}

// Reads the header of `member` and sets the offset of its content. `end` is the offset of the
// directory.
void ReadHeader(const InputFile& file, uint64_t end, ZipMember& member, const auto& refuse) {
  if (member.header > end || end - member.header < zip::kHeaderBytes) {
    refuse("it begins outside of the file");
  }
  const std::string text = ReadBytes(file, member.header, zip::kHeaderBytes);
  const Record header(text);
  if (header.At<uint32_t>(0) != zip::kHeaderMark) refuse("its header is damaged");
  member.begin =
      member.header + zip::kHeaderBytes + header.At<uint16_t>(26) + header.At<uint16_t>(28);
  if (member.begin > end || member.bytes > end - member.begin) {
    refuse("it ends outside of the file");
  }
}

void RefuseOverlaps(const InputFile& file, const std::vector<ZipMember>& members) {
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const ZipMember& member : members) {
    if (!names.insert(member.name).second) {
      Refuse(file, "has two members " + Quoted(member.name));
    }
    if (member.header < end) Refuse(file, "member " + Quoted(member.name) + " overlaps another");
    end = member.begin + member.bytes;
  }
}

}  // namespace

std::vector<ZipMember> ReadZipDirectory(const InputFile& file, uint64_t begin, uint64_t end) {
  const Extent extent = FindDirectory(file, begin, end);
  const std::string directory = ReadBytes(file, extent.begin, extent.bytes);
  std::string_view rest = directory;
  std::vector<ZipMember> members;
  while (members.size() < extent.members) {
    if (rest.size() < zip::kEntryBytes) Refuse(file, "its directory ends before its last member");
    const Record entry(rest);
    const uint64_t name_bytes = entry.At<uint16_t>(28);
    const uint64_t extra_bytes = entry.At<uint16_t>(30);
    const uint64_t bytes = zip::kEntryBytes + name_bytes + extra_bytes + entry.At<uint16_t>(32);
    if (entry.At<uint32_t>(0) != zip::kEntryMark || bytes > rest.size()) {
      Refuse(file, "its directory is damaged at member " + std::to_string(members.size()));
    }
    ZipMember member;
    member.name = rest.substr(zip::kEntryBytes, name_bytes);
    const auto refuse = [&](const std::string& problem) {
      Refuse(file, "member " + Quoted(member.name) + ": " + problem);
    };
    if (!IsSafeName(member.name)) refuse("its name is empty or leaves the archive's folder");
    const Place place =
        PlaceOf(entry, rest.substr(zip::kEntryBytes + name_bytes, extra_bytes), refuse);
    if (entry.At<uint16_t>(10) != 0 || place.bytes != place.stored_bytes) {
      refuse("it is compressed; torch.save stores members without compression");
    }
    if ((entry.At<uint16_t>(8) & zip::kEncrypted) != 0) refuse("it is encrypted");
    if (place.header > extent.begin - begin) refuse("it begins outside of the file");
    member.header = begin + place.header;
    member.bytes = place.bytes;
    ReadHeader(file, extent.begin, member, refuse);
    members.push_back(std::move(member));
    rest.remove_prefix(bytes);
  }
  std::sort(members.begin(), members.end(),
            [](const ZipMember& a, const ZipMember& b) { return a.header < b.header; });
  RefuseOverlaps(file, members);
  return members;
}

}  // namespace dslaunch
