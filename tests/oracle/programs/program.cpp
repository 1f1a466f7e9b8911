#include "tests/oracle/programs/program.h"

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "tests/support/oracle.h"

namespace troupe::testing {
namespace {

using nlohmann::json;

Arg read_arg(const json& j) {
  Arg a;
  if (j.is_boolean()) {
    a = {Arg::Kind::flag, j.get<bool>(), j.get<bool>() ? 1.0 : 0.0, {}, {}};
  } else if (j.is_number_integer()) {
    a = {Arg::Kind::integer, j.get<int64_t>(), j.get<double>(), {}, {}};
  } else if (j.is_number()) {
    a = {Arg::Kind::real, 0, j.get<double>(), {}, {}};
  } else if (j.is_string()) {
    a = {Arg::Kind::text, 0, 0, j.get<std::string>(), {}};
  } else if (j.is_array()) {
    a.kind = Arg::Kind::list;
    for (const json& item : j) a.items.push_back(read_arg(item));
  } else if (j.is_object()) {
    if (j.contains("t")) a = {Arg::Kind::tensor, 0, 0, j.at("t").get<std::string>(), {}};
    if (j.contains("dtype")) a = {Arg::Kind::dtype, 0, 0, j.at("dtype").get<std::string>(), {}};
    if (j.contains("ellipsis")) a.kind = Arg::Kind::ellipsis;
    if (j.contains("slice")) {
      a = read_arg(j.at("slice"));
      a.kind = Arg::Kind::slice;
    }
  }
  return a;
}

Wanted read_wanted(const json& j) {
  return {j.at("dtype"), j.at("shape").get<std::vector<int64_t>>(), j.at("data"),
          j.value("requires_grad", false)};
}

void collect(const Arg& a, std::vector<std::string>& names) {
  if (a.kind == Arg::Kind::tensor) names.push_back(a.text);
  for (const Arg& item : a.items) collect(item, names);
}

void widen(std::string& dtype) {
  if (dtype == "float32") dtype = "float64";
}

void widen(Arg& a) {
  if (a.kind == Arg::Kind::dtype) widen(a.text);
  for (Arg& item : a.items) widen(item);
}

}  // namespace

Program in_float64(Program p) {
  for (Leaf& leaf : p.leaves) widen(leaf.value.dtype);
  for (Statement& s : p.body) {
    for (Arg& a : s.args) widen(a);
    for (auto& [key, a] : s.options) widen(a);
    for (Wanted& w : s.gives) w.dtype.clear();
    s.close = std::max(s.close, 0.1);
  }
  return p;
}

bool has_float32(const Program& p) {
  const auto is = [](const auto& value) { return value.dtype == "float32"; };
  return std::ranges::any_of(p.leaves, is, &Leaf::value) ||
         std::ranges::any_of(p.body, [&](const Statement& s) { return std::ranges::any_of(s.gives, is); });
}

Program with_noise(Program p, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> change(-1, 1);
  for (Leaf& leaf : p.leaves) {
    const double digit = leaf.value.dtype == "float64"   ? 0x1p-51
                         : leaf.value.dtype == "float32" ? 0x1p-22
                                                         : 0;
    for (json& number : leaf.value.data)
      if (number.is_number() && digit > 0) number = number.get<double>() * (1 + digit * change(random));
  }
  for (Statement& s : p.body) s.close = std::max(s.close, 0.1);
  return p;
}

std::vector<std::string> Statement::inputs() const {
  std::vector<std::string> names;
  for (const Arg& a : args) collect(a, names);
  return names;
}

Statement read_statement(const json& j, bool no_grad) {
  Statement s;
  s.op = j.at("op");
  s.how = j.at("how");
  for (const json& a : j.at("args")) s.args.push_back(read_arg(a));
  for (const auto& [key, value] : j.at("kwargs").items()) s.options[key] = read_arg(value);
  s.no_grad = no_grad;
  if (j.contains("out")) s.out = j.at("out").get<std::vector<std::string>>();
  if (j.contains("gives"))
    for (const json& g : j.at("gives")) s.gives.push_back(read_wanted(g));
  if (j.contains("changes"))
    for (const auto& [key, value] : j.at("changes").items()) s.changes[key] = value;
  s.close = j.value("close", 0.0);
  s.raises = j.value("raises", "");
  s.optional = j.contains("optional");
  s.source = j.dump();
  return s;
}

Program read_program(const json& j) {
  Program p;
  for (const json& leaf : j.at("leaves"))
    p.leaves.push_back({leaf.at("name"), read_wanted(leaf), leaf.value("view", false)});
  for (const json& s : j.at("body")) {
    if (!s.contains("no_grad")) {
      p.body.push_back(read_statement(s));
      continue;
    }
    for (const json& inner : s.at("no_grad")) p.body.push_back(read_statement(inner, true));
  }
  for (const json& r : j.at("roots")) p.roots.push_back({r.at("name"), r.at("weight")});
  for (const auto& [key, value] : j.at("grads").items()) p.grads[key] = value;
  p.grads_close = j.at("grads_close");
  p.backward_raises = j.value("backward_raises", "");
  return p;
}

std::vector<Program> read_programs(const std::string& name) {
  std::vector<Program> all;
  const json file = read_oracle(name);
  for (const json& p : file.at("programs")) all.push_back(read_program(p));
  return all;
}

// More operators than needed cost only statements that are left out.
bool shares(const Statement& s) {
  static const std::set<std::string> views = {
      "transpose", "permute", "unsqueeze", "squeeze",    "reshape", "flatten", "expand",  "t",
      "view",      "narrow",  "unbind",    "contiguous", "detach",  "movedim", "getitem", "to"};
  return views.contains(s.op);
}

}  // namespace troupe::testing
