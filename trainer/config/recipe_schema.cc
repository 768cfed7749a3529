#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/config/key_reference.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

// Returns `schema` extended by null. Every key may be null, which means the same as omitting the
// key.
Json OrNull(Json schema) {
  if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  } else if (schema.contains("type") && schema["type"].is_array()) {
    schema["type"].push_back("null");
  } else if (schema.contains("type")) {
    schema["type"] = {schema["type"], "null"};
  }
  return schema;
}

Json SectionSchema() {
  return {{"type", {"object", "null"}},
          {"properties", Json::object()},
          {"additionalProperties", false}};
}

// Returns the schema of a key's value, which must match one of the schemas of the key.
Json ValueSchema(const ReferenceKey& key) {
  Json kinds = Json::array();
  for (const std::string& schema : key.schemas) kinds.push_back(OrNull(Json::parse(schema)));
  Json value = kinds.empty()       ? Json::object()
               : kinds.size() == 1 ? kinds[0]
                                   : Json{{"anyOf", kinds}};
  std::string about =
      key.refusal.empty() ? key.meaning : "Refused but for one value: " + key.refusal;
  if (!key.types.empty()) {
    std::string types;
    for (const std::string& type : key.types) types += (types.empty() ? "" : ", ") + type;
    about += " (of " + types + ")";
  }
  value["description"] = about;
  return value;
}

// Returns the schema object of the section `path`, such as "engine.optimizer.param_groups[]".
Json& SectionOf(Json& root, std::string_view path) {
  Json* at = &root;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    std::string name(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    const bool of_items = name.ends_with("[]");
    if (of_items) name.resize(name.size() - 2);
    at = &(*at)["properties"][name];
    if (!of_items) continue;
    if (!at->contains("items")) {
      (*at)["items"] = SectionSchema();
      (*at)["items"]["type"] = "object";
    }
    at = &(*at)["items"];
  }
  return *at;
}

}  // namespace

std::string RecipeSchema() {
  Json root = SectionSchema();
  root["type"] = "object";
  for (const ReferenceKey& key : RecipeKeys()) {
    const size_t dot = key.path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : key.path.substr(0, dot);
    const std::string name = dot == std::string::npos ? key.path : key.path.substr(dot + 1);
    Json& properties = SectionOf(root, parent)["properties"];
    if (key.value.empty()) {
      properties[name] = SectionSchema();
      properties[name]["description"] = key.meaning;
    } else {
      properties[name] = ValueSchema(key);
    }
  }
  Json& properties = root["properties"];
  properties["engine"]["type"] = {"object", "string"};
  properties["engine"]["description"] = "a DeepSpeed configuration, or the name of a file with one";
  properties["launch"] = {
      {"type", "object"},
      {"description", "options of dslaunch by their names, without dashes in front"}};
  root["required"] = {"model", "data"};
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "dslaunch recipe"}};
  schema.update(root);
  return schema.dump(2) + "\n";
}

}  // namespace dslaunch
