// How values look at the prompt.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/ascii.h"
#include "script/show.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {
namespace {

constexpr int kMost = 20;  // entries of a table

std::string number_text(lua_State* L, int at) {
  if (lua_isinteger(L, at)) return fmt::format("{}", lua_tointeger(L, at));
  const double d = lua_tonumber(L, at);
  if (std::trunc(d) == d && std::abs(d) < 1e15) return fmt::format("{:.1f}", d);
  return fmt::format("{}", d);
}

bool is_name(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) && std::ranges::all_of(text, is_word);
}

std::string shown_at(lua_State* L, int at, int depth);

std::string table_text(lua_State* L, int at, int depth) {
  if (depth > 3) return "{...}";
  const auto length = static_cast<int64_t>(lua_rawlen(L, at));
  std::vector<std::string> parts;
  bool wide = false;
  for (int64_t i = 1; i <= std::min<int64_t>(length, kMost); ++i) {
    lua_rawgeti(L, at, i);
    parts.push_back(shown_at(L, lua_gettop(L), depth + 1));
    wide |= parts.back().find('\n') != std::string::npos;
    lua_pop(L, 1);
  }
  if (length > kMost) parts.push_back(fmt::format("... {} more", length - kMost));
  std::vector<std::string> named;
  int64_t others = 0;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
    if (lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 && lua_tointeger(L, -2) <= length) continue;
    if (++others > kMost) continue;
    std::string key;
    if (lua_type(L, -2) == LUA_TSTRING && is_name(text_at(L, -2)))
      key = std::string(text_at(L, -2));
    else
      key = "[" + shown_at(L, lua_gettop(L) - 1, depth + 1) + "]";
    named.push_back(key + " = " + shown_at(L, lua_gettop(L), depth + 1));
    wide |= named.back().find('\n') != std::string::npos;
  }
  std::ranges::sort(named);  // the same order every time
  if (others > kMost) named.push_back(fmt::format("... {} more", others - kMost));
  parts.insert(parts.end(), named.begin(), named.end());
  size_t total = 0;
  for (const std::string& p : parts) total += p.size() + 2;
  const std::string indent = "\n" + std::string(static_cast<size_t>(depth) * 2 + 2, ' ');
  const bool lines = wide || total > 100;
  std::string out = "{";
  for (std::string& part : parts)  // a tensor's rows stay below each other
    for (size_t at = 0; (at = part.find('\n', at)) != std::string::npos; at += indent.size())
      part.replace(at, 1, indent);
  for (size_t i = 0; i < parts.size(); ++i)
    out += (lines ? indent : i ? " " : "") + parts[i] + (i + 1 < parts.size() ? "," : "");
  return out + (lines ? "\n" + std::string(static_cast<size_t>(depth) * 2, ' ') : "") + "}";
}

std::string shown_at(lua_State* L, int at, int depth) {
  luaL_checkstack(L, 8, "too many nested tables");
  switch (lua_type(L, at)) {
    case LUA_TNIL:
    case LUA_TNONE:
      return "nil";
    case LUA_TBOOLEAN:
      return lua_toboolean(L, at) ? "true" : "false";
    case LUA_TNUMBER:
      return number_text(L, at);
    case LUA_TSTRING:
      return depth == 0 ? script::harmless(text_at(L, at))
                        : script::harmless(fmt::format("\"{}\"", text_at(L, at)), 200);
    case LUA_TTABLE:
      if (luaL_getmetafield(L, at, "__tostring") == LUA_TNIL) return table_text(L, at, depth);
      lua_pop(L, 1);
      [[fallthrough]];
    default:
      if (auto* t = get_if<Tensor>(L, at); t && depth > 0 && t->numel() > 8) return "tensor " + t->summary();
      std::string text(luaL_tolstring(L, at, nullptr));
      lua_pop(L, 1);
      return script::harmless(text);
  }
}

}  // namespace

std::string shown(lua_State* L, int at) { return shown_at(L, lua_absindex(L, at), 0); }

}  // namespace troupe::repl
