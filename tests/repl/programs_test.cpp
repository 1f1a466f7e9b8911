// The random programs of the oracle, each statement written in Lua: operators by name give what PyTorch
// gives.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "core/graph/node.h"
#include "tests/oracle/programs/calls.h"
#include "tests/oracle/programs/run.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

// Statements that cannot be written so: an index of several tensors, say. They only fall.
constexpr int64_t kRefused = 15;

std::string lua_text(const Arg& a);

std::string list_text(const std::vector<Arg>& items) {
  std::string out = "{";
  for (const Arg& item : items) out += lua_text(item) + ", ";
  return out + "}";
}

std::string lua_text(const Arg& a) {
  switch (a.kind) {
    case Arg::Kind::none:
      return "nil";
    case Arg::Kind::flag:
      return a.integer ? "true" : "false";
    case Arg::Kind::integer:
      return a.integer == INT64_MIN ? "math.mininteger" : fmt::format("{}", a.integer);
    case Arg::Kind::real:
      if (std::isnan(a.real)) return "(0/0)";
      if (std::isinf(a.real)) return a.real > 0 ? "math.huge" : "-math.huge";
      return fmt::format("{:.17e}", a.real);
    case Arg::Kind::text:
    case Arg::Kind::dtype:
      return "\"" + a.text + "\"";
    case Arg::Kind::tensor:
      return a.text;
    case Arg::Kind::list:
      return list_text(a.items);
    default:
      throw NotHere("an index alone");
  }
}

// What stands between brackets: a text, "0, 1:, None", or with tensors a table, {i, "1:", 0}.
std::string index_text(const Arg& a) {
  if (a.kind == Arg::Kind::tensor) return a.text;
  if (a.kind != Arg::Kind::list) {
    Arg list;
    list.kind = Arg::Kind::list;
    list.items = {a};
    return index_text(list);
  }
  if (a.items.size() == 1 && a.items[0].kind == Arg::Kind::list) return index_text(a.items[0]);
  const bool table = std::any_of(a.items.begin(), a.items.end(), [](const Arg& item) {
    return item.kind == Arg::Kind::tensor || item.kind == Arg::Kind::list;
  });
  std::string out;
  for (const Arg& item : a.items) {
    std::string one;
    if (item.kind == Arg::Kind::none) {
      one = "None";
    } else if (item.kind == Arg::Kind::ellipsis) {
      one = "...";
    } else if (item.kind == Arg::Kind::integer) {
      one = fmt::format("{}", item.integer);
    } else if (item.kind == Arg::Kind::slice) {
      for (size_t i = 0; i < item.items.size(); ++i)
        one += (i ? ":" : "") + (item.items[i].kind == Arg::Kind::integer
                                     ? fmt::format("{}", item.items[i].integer)
                                     : std::string());
    } else if (table) {
      out += (out.empty() ? "" : ", ") + lua_text(item);
      continue;
    } else {
      throw NotHere("an index that is no number, slice or tensor");
    }
    out += (out.empty() ? "" : ", ") + (table ? "\"" + one + "\"" : one);
  }
  return table ? "{" + out + "}" : "\"" + out + "\"";
}

std::string statement_text(const Statement& s) {
  if (s.args.empty()) throw NotHere("no arguments");
  const std::string first = lua_text(s.args[0]);
  if (s.how == "getitem") return "return " + first + "[" + index_text(s.args[1]) + "]";
  if (s.how == "setitem")
    return first + "[" + index_text(s.args[1]) + "] = " + lua_text(s.args[2]) + " return " + first;
  std::string arguments;
  const bool method = s.how == "method" && s.args[0].kind == Arg::Kind::tensor;
  for (size_t i = method ? 1 : 0; i < s.args.size(); ++i)
    arguments += (arguments.empty() ? "" : ", ") + lua_text(s.args[i]);
  if (!s.options.empty()) {
    std::string options;
    for (const auto& [name, value] : s.options)
      options += fmt::format("[\"{}\"] = {}, ", name, lua_text(value));
    arguments += (arguments.empty() ? "{" : ", {") + options + "}";
  }
  const std::string name = s.op == "repeat" ? "repeat_" : s.op;
  if (method) return "return " + first + ":" + name + "(" + arguments + ")";
  return "return ops." + name + "(" + arguments + ")";
}

}  // namespace

TEST_CASE("random programs written in Lua give what PyTorch gives, or are refused") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  lua_State* L = interpreter.state();
  RunOptions options = run_here();
  options.run = [&](const Statement& s, const std::function<Tensor(const std::string&)>& tensor_named) {
    for (const std::string& name : s.inputs()) {
      repl::push_tensor(L, tensor_named(name));
      lua_setglobal(L, name.c_str());
    }
    const GradMode mode(grad_enabled() && !s.no_grad);
    const std::string text = statement_text(s);
    lua_settop(L, 0);
    if (luaL_loadbufferx(L, text.data(), text.size(), "=statement", "t") != LUA_OK ||
        lua_pcall(L, 0, LUA_MULTRET, 0) != LUA_OK)
      throw_invalid(std::string(repl::text_at(L, -1)));
    Tensors out;
    for (int i = 1; i <= lua_gettop(L); ++i) {
      const Value v = repl::value_at(L, i);
      if (const auto* t = v.get_if<Tensor>()) out.push_back(*t);
      if (const auto* list = v.get_if<ValueList>())
        for (const Value& element : *list)
          if (const auto* t = element.get_if<Tensor>()) out.push_back(*t);
    }
    lua_settop(L, 0);
    out.resize(std::min(out.size(), s.out.empty() ? out.size() : s.out.size()));
    return out;
  };
  Tally tally;
  int64_t number = 0;
  for (const Program& p : read_programs())
    run_program(p, "program " + std::to_string(number++), options, tally);
  tally.print("programs in Lua");
  REQUIRE(tally.programs > 0);
  for (size_t i = 0; i < std::min<size_t>(tally.different.size(), 20); ++i) UNSCOPED_INFO(tally.different[i]);
  CHECK(tally.different.empty());
  CHECK(tally.refusals() <= kRefused);
}
