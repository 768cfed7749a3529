// Marks the beginnings of documents in a tensor of tokens, so that no second tensor has to
// accompany it.
#pragma once

#include <cstdint>

namespace dslaunch {

// Returns `token`, which must not be negative, marked as the first of a document. Marked tokens are
// negative. The first token of a sample begins a document even without a mark.
constexpr int64_t MarkDocumentStart(int64_t token) { return ~token; }
// Returns whether MarkDocumentStart has marked the token.
constexpr bool IsDocumentStart(int64_t token) { return token < 0; }
// Returns the token without its mark; an unmarked token is returned unchanged.
constexpr int64_t WithoutDocumentMark(int64_t token) { return token < 0 ? ~token : token; }

}  // namespace dslaunch
