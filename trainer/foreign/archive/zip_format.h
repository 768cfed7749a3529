// Defines sizes and signatures of a zip file's records (PKWARE's APPNOTE, 4.3).
#pragma once

#include <cstdint>

namespace dslaunch::zip {

inline constexpr uint64_t kHeaderBytes = 30;  // bytes of a member's header without the name
inline constexpr uint64_t kEntryBytes = 46;   // bytes of a directory entry without the name
// Bytes of the end-of-directory record without the comment.
inline constexpr uint64_t kEndBytes = 22;
inline constexpr uint64_t kEnd64Bytes = 56;    // bytes of zip64's end-of-directory record
inline constexpr uint64_t kLocatorBytes = 20;  // bytes of zip64's end-of-directory locator

inline constexpr uint32_t kHeaderMark = 0x04034b50;
// Signature of the record with checksum and sizes that may follow a member.
inline constexpr uint32_t kSumMark = 0x08074b50;
inline constexpr uint32_t kEntryMark = 0x02014b50;
inline constexpr uint32_t kEndMark = 0x06054b50;
inline constexpr uint32_t kEnd64Mark = 0x06064b50;
inline constexpr uint32_t kLocatorMark = 0x07064b50;

inline constexpr uint16_t kZip64Field = 1;  // id of the extra field with 64-bit numbers
inline constexpr uint16_t kEncrypted = 1;   // flag of an encrypted member
inline constexpr uint16_t kSumAfter = 8;    // flag of a member whose checksum follows its content
inline constexpr uint16_t kUtf8 = 0x800;    // flag of a member whose name is UTF-8

}  // namespace dslaunch::zip
