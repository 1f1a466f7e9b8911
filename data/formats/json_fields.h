// The fields of an object of JSON, asked for by name.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/value/value.h"

namespace troupe::datasets {

/// An object whose fields other programs wrote. Null is as absent, as Python's configurations have it. What
/// is not as asked for is `invalid`, with `what` (the file), the field, what it is and what was expected.
class JsonFields {
 public:
  JsonFields(Value object, std::string what);

  /// Null: absent.
  const Value* find(const std::string& name) const&;
  const Value* find(const std::string& name) && = delete;  // name the object
  bool has(const std::string& name) const { return find(name) != nullptr; }
  /// Without `otherwise` they have to be there.
  int64_t whole(const std::string& name, std::optional<int64_t> otherwise = {}) const;
  double number(const std::string& name, std::optional<double> otherwise = {}) const;
  bool truth(const std::string& name, std::optional<bool> otherwise = {}) const;
  std::string text(const std::string& name, std::optional<std::string> otherwise = {}) const;
  /// A list of texts.
  std::vector<std::string> texts(const std::string& name) const;
  JsonFields inner(const std::string& name) const;
  const std::map<std::string, Value>& all() const& { return *object_.get_if<ValueMap>(); }
  std::map<std::string, Value> all() && { return std::get<ValueMap>(std::move(object_.v)); }
  const std::string& what() const& { return what_; }
  std::string what() && { return std::move(what_); }

  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse(const std::string& name, const Value& got, const std::string& expected) const;

 private:
  const Value* needed(const std::string& name, bool optional) const;

  Value object_;
  std::string what_;
};

/// Reads a file that holds an object.
JsonFields read_json_fields(const std::string& path, const char* tag);

}  // namespace troupe::datasets
