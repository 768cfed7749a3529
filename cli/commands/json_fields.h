// Describes the fields of all JSON that dslaunch writes for programs, for docs/reference.
// tests/docs/json_test.py compares the descriptions with the output of the commands.
#pragma once

#include <vector>

namespace dslaunch {

struct JsonField {
  const char* path;     // path of the field, such as "cause.node" or "nodes[].name"
  const char* meaning;  // meaning without a full stop; begins with "object: " if the keys are data
};

struct JsonDocument {
  const char* name;   // heading of the document, such as "--json" or "started"
  const char* about;  // description of the document in one sentence
  std::vector<JsonField> fields;
};

// Returns descriptions of the output of commands with --json.
const std::vector<JsonDocument>& JsonOutputs();

// Returns descriptions of the lines of events.jsonl, by the name of the event. All lines also
// contain "t" (Unix time in seconds) and "event".
const std::vector<JsonDocument>& JsonEvents();

}  // namespace dslaunch
