#include "ops/dispatch/attrs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"

namespace troupe::ops {
namespace {

const char* kind(const AttrValue& value) {
  constexpr const char* kKinds[] = {"a boolean",          "an integer",        "a number", "a text",
                                    "a list of integers", "a list of numbers", "a number"};
  return kKinds[value.index()];
}

// Gives `value` the type of `like` if that loses nothing.
bool take_type_of(AttrValue& value, const AttrValue& like) {
  if (value.index() == like.index()) return true;
  const bool wants_ints = std::holds_alternative<std::vector<int64_t>>(like);
  if (std::holds_alternative<Scalar>(like)) {
    if (const auto* b = std::get_if<bool>(&value)) return value = Scalar(*b), true;
    if (const auto* i = std::get_if<int64_t>(&value)) return value = Scalar(*i), true;
    if (const auto* d = std::get_if<double>(&value)) return value = Scalar(*d), true;
    return false;
  }
  if (const auto* i = std::get_if<int64_t>(&value)) {
    if (std::holds_alternative<double>(like)) return value = static_cast<double>(*i), true;
    if (wants_ints) return value = std::vector<int64_t>{*i}, true;
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value);
      list && std::holds_alternative<std::vector<double>>(like))
    return value = std::vector<double>(list->begin(), list->end()), true;
  if (const auto* list = std::get_if<std::vector<double>>(&value); list && list->empty() && wants_ints)
    return value = std::vector<int64_t>{}, true;
  return false;
}

}  // namespace

std::string str(const AttrValue& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>)
          return fmt::format("\"{}\"", v);
        else if constexpr (std::is_same_v<std::decay_t<decltype(v)>, Scalar>)
          return v.str();
        else
          return fmt::format("{}", v);
      },
      value);
}

Attr::Attr(std::string_view n, AttrValue v) : name(n), value(std::move(v)) {}
Attr::Attr(std::string_view n, bool v) : name(n), value(v) {}
Attr::Attr(std::string_view n, int v) : name(n), value(int64_t{v}) {}
Attr::Attr(std::string_view n, int64_t v) : name(n), value(v) {}
Attr::Attr(std::string_view n, double v) : name(n), value(v) {}
Attr::Attr(std::string_view n, Scalar v) : name(n), value(v) {}
Attr::Attr(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
Attr::Attr(const Attr&) = default;
Attr::Attr(Attr&&) noexcept = default;
Attr& Attr::operator=(const Attr&) = default;
Attr& Attr::operator=(Attr&&) noexcept = default;
Attr::~Attr() = default;

Attrs::Attrs(std::initializer_list<Attr> list) : list_(list) {}
std::vector<Attr> Attrs::list() && { return std::move(list_); }
void Attrs::add(Attr attr) { list_.push_back(std::move(attr)); }

bool Attrs::flag(std::string_view name) const { return get<bool>(name); }
int64_t Attrs::integer(std::string_view name) const { return get<int64_t>(name); }
double Attrs::number(std::string_view name) const { return get<double>(name); }
Scalar Attrs::scalar(std::string_view name) const { return get<Scalar>(name); }
const std::string& Attrs::text(std::string_view name) const& { return get<std::string>(name); }
std::string Attrs::text(std::string_view name) && { return get<std::string>(name); }
const std::vector<int64_t>& Attrs::ints(std::string_view name) const& {
  return get<std::vector<int64_t>>(name);
}
std::vector<int64_t> Attrs::ints(std::string_view name) && { return get<std::vector<int64_t>>(name); }

Attrs Attrs::complete(const Attrs& defaults, std::string_view op) && {
  const auto same = [](const Attr& a, const Attr& b) {
    return a.name == b.name && a.value.index() == b.value.index();
  };
  if (std::equal(list_.begin(), list_.end(), defaults.list_.begin(), defaults.list_.end(), same)) {
    for (size_t i = 0; i < list_.size(); ++i) list_[i].name = defaults.list_[i].name;
    return std::move(*this);  // the usual case: nothing to fill in
  }
  Attrs out;
  out.list_.reserve(defaults.list_.size());
  size_t used = 0;
  for (size_t i = 0; i < defaults.list_.size(); ++i) {
    const Attr& declared = defaults.list_[i];
    Attr* given = i < list_.size() && list_[i].name == declared.name ? &list_[i] : nullptr;
    for (size_t j = 0; !given && j < list_.size(); ++j)
      if (list_[j].name == declared.name) given = &list_[j];
    if (!given) {
      out.list_.push_back(declared);
      continue;
    }
    ++used;
    if (!take_type_of(given->value, declared.value))
      throw_invalid(fmt::format("[{}] attribute {} is {}, got {} ({})", op, declared.name,
                                kind(declared.value), kind(given->value), str(given->value)));
    out.list_.emplace_back(declared.name, std::move(given->value));
  }
  if (used == list_.size()) return out;
  std::vector<std::string> known;
  for (const Attr& a : defaults.list_) known.emplace_back(a.name);
  for (const Attr& a : list_)
    if (std::find(known.begin(), known.end(), a.name) == known.end())
      throw_invalid(fmt::format("[{}] no attribute {}; it has [{}]", op, a.name, fmt::join(known, ", ")));
  throw_invalid(fmt::format("[{}] an attribute is given twice", op));
}

const AttrValue& Attrs::find(std::string_view name) const {
  for (const Attr& a : list_)
    if (a.name == name) return a.value;
  throw_invalid(fmt::format("[ops] attribute {} is not there", name));
}

}  // namespace troupe::ops
