#include "core/value/value.h"

namespace troupe {

Value::Value(const Value& o) : v(o.v) {}
Value::Value(Value&& o) noexcept : v(std::move(o.v)) {}
Value& Value::operator=(const Value& o) {
  v = o.v;
  return *this;
}
Value& Value::operator=(Value&& o) noexcept {
  v = std::move(o.v);
  return *this;
}
Value::~Value() { std::destroy_at(&v); }

std::string Value::describe() const {
  struct Visitor {
    std::string operator()(std::monostate) const { return "nothing"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(int64_t) const { return "int64"; }
    std::string operator()(double) const { return "double"; }
    std::string operator()(const std::string&) const { return "string"; }
    std::string operator()(const Bytes& b) const { return std::to_string(b.size()) + " bytes"; }
    std::string operator()(const Tensor& t) const { return "tensor " + t.summary(); }
    std::string operator()(const RefValue& r) const { return "reference to " + r.type; }
    std::string operator()(const ValueList& l) const { return "list of " + std::to_string(l.size()); }
    std::string operator()(const ValueMap& m) const { return "map of " + std::to_string(m.size()); }
  };
  return std::visit(Visitor{}, v);
}

}  // namespace troupe
