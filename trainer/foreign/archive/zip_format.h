// Sizes and signatures of a zip file's records (PKWARE's APPNOTE, 4.3), for its reader and writer.
#pragma once

#include <cstdint>

namespace dslaunch::zip {

inline constexpr uint64_t kHeaderBytes = 30;   // before a member's name
inline constexpr uint64_t kEntryBytes = 46;    // an entry of the directory, before its name
inline constexpr uint64_t kEndBytes = 22;      // the last record, before its comment
inline constexpr uint64_t kEnd64Bytes = 56;    // zip64: the record before the last two
inline constexpr uint64_t kLocatorBytes = 20;  // zip64: has the offset of that record

inline constexpr uint32_t kHeaderMark = 0x04034b50;
inline constexpr uint32_t kSumMark = 0x08074b50;  // after a member: its checksum and size
inline constexpr uint32_t kEntryMark = 0x02014b50;
inline constexpr uint32_t kEndMark = 0x06054b50;
inline constexpr uint32_t kEnd64Mark = 0x06064b50;
inline constexpr uint32_t kLocatorMark = 0x07064b50;

inline constexpr uint16_t kZip64Field = 1;  // extra field with 64-bit numbers
inline constexpr uint16_t kEncrypted = 1;   // flag
inline constexpr uint16_t kSumAfter = 8;    // flag: the header has no checksum
inline constexpr uint16_t kUtf8 = 0x800;    // flag: the name is UTF-8

}  // namespace dslaunch::zip
