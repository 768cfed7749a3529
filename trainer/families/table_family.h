// A family of models whose settings have a table of keys.
#pragma once

#include <string>
#include <utility>

#include "trainer/config/key_table.h"
#include "trainer/config/model_family.h"

namespace dslaunch {

// `Settings` is the struct of the family; its member function Needs() returns what
// ModelFamily::Needs does.
template <class Settings>
class TableFamily : public ModelFamily {
 public:
  TableFamily(const char* type, KeyTable<Settings> keys) : type_(type), keys_(std::move(keys)) {}

  const char* type() const override { return type_; }
  ModelConfig Read(JsonObject& section) const override { return ReadKeys(section, keys_); }
  DataNeeds Needs(const ModelConfig& config) const override {
    return config.As<Settings>().Needs();
  }
  nlohmann::ordered_json Section(const ModelConfig& config) const override {
    nlohmann::ordered_json section = ShowKeys(keys_, config.As<Settings>());
    section["type"] = type_;
    return section;
  }

 private:
  const char* const type_;
  const KeyTable<Settings> keys_;
};

}  // namespace dslaunch
