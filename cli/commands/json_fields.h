// Descriptions of the fields of all JSON that dslaunch writes for programs, for docs/reference.
// tests/docs/json_test.py compares them with the commands' output.
#pragma once

#include <vector>

namespace dslaunch {

struct JsonField {
  const char* path;     // "cause.node", "nodes[].name"
  const char* meaning;  // without a full stop; "object: ..." if the keys are data
};

struct JsonDocument {
  const char* name;   // heading of the document: "--json", "started"
  const char* about;  // a sentence
  std::vector<JsonField> fields;
};

// Returns the output of commands with --json.
const std::vector<JsonDocument>& JsonOutputs();

// Returns the lines of events.jsonl by the name of the event. All have "t" (Unix time in seconds)
// and "event" too.
const std::vector<JsonDocument>& JsonEvents();

}  // namespace dslaunch
