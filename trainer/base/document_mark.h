// Marks in a tensor of tokens where its documents begin, so that nothing else need travel with it.
#pragma once

#include <cstdint>

namespace dslaunch {

// Marks a token, which is not negative, as the first of a document. Marks are negative; the first
// token of a sample begins a document without one.
constexpr int64_t MarkDocumentStart(int64_t token) { return ~token; }
constexpr bool IsDocumentStart(int64_t token) { return token < 0; }
constexpr int64_t WithoutDocumentMark(int64_t token) { return token < 0 ? ~token : token; }

}  // namespace dslaunch
