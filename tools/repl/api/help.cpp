// help, time, and the names that completion offers.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "core/base/ascii.h"
#include "script/catalog.h"
#include "script/show.h"
#include "tools/repl/api/reference.h"
#include "tools/repl/lua/globals.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {
namespace {

std::string overview() {
  std::string out = "Functions (help \"name\" says more, and so does a name alone at the prompt):\n ";
  size_t column = 1;
  for (const HelpEntry& g : globals()) {
    if (column + std::string_view(g.name).size() > 90) out += "\n ", column = 1;
    out += std::string(" ") + g.name;
    column += std::string_view(g.name).size() + 1;
  }
  out += "\nTables:\n";
  for (const auto& section : script::catalog())
    out += fmt::format("  {:<7} {} ({})\n", section.prefix + ".*", section.title, section.entries.size());
  return out +
         "Indices of tensors count from 0, those of Lua's tables from 1. A future is waited for where its "
         "value is used.\n";
}

std::string entry_text(const std::string& full, const Entry& entry) {
  std::string out = full.substr(0, full.size() - entry.name.size()) + entry.signature() + "\n";
  if (!entry.text.empty()) out += "  " + entry.text + "\n";
  for (const Parameter& p : entry.parameters)
    if (!p.text.empty()) out += fmt::format("  {}: {}\n", p.name, p.text);
  return out;
}

// The sections behind a table: ops, nn, optim, data. Names alone where there are many.
std::string section_text(std::string_view prefix) {
  constexpr size_t kMany = 40;
  std::string out;
  for (const auto& section : script::catalog()) {
    if (section.prefix != prefix) continue;
    out += section.title + "\n";
    if (section.entries.size() <= kMany) {
      for (const Entry& e : section.entries) out += fmt::format("  {}.{}\n", prefix, e.signature());
      continue;
    }
    size_t column = 0;
    for (const Entry& e : section.entries) {
      if (column + e.name.size() > 90) out += "\n", column = 0;
      out += (column ? " " : "  ") + e.name;
      column += e.name.size() + 1;
    }
    out += fmt::format("\nhelp({}.{}) says more.\n", prefix, section.entries.front().name);
  }
  for (const HelpEntry& g : globals())
    if (std::string_view(g.name).starts_with(std::string(prefix) + "."))
      out += fmt::format("  {}\n", g.signature);
  return out;
}

std::string methods_text(std::string_view type) {
  std::string out;
  for (const HelpEntry& d : object_methods())
    if (std::string_view(d.name).starts_with(std::string(type) + ":"))
      out += fmt::format("  {}\n    {}\n", d.signature, d.text);
  return out;
}

std::string type_of_actors(script::Session& session, const std::string& name) {
  for (const auto& worker : session.cluster().workers())
    for (const auto& type : session.types(Place(worker).in(session.worker().members())))
      if (type.name == name) {
        std::string out;
        for (const auto& c : type.constructors)
          out += fmt::format("spawn {}\n", c.entry.signature()) +
                 (c.entry.text.empty() ? "" : "  " + c.entry.text + "\n");
        for (const Entry& m : type.methods)
          out += "  " + m.signature() + "\n" + (m.text.empty() ? "" : "    " + m.text + "\n");
        return out;
      }
  return {};
}

std::string described(lua_State* L, const std::string& name) {
  std::string out;
  for (const auto& [full, entry] : script::find_everywhere(name.substr(name.rfind('.') + 1)))
    if (full == name || name.find('.') == name.npos) out += entry_text(full, entry);
  for (const auto list : {globals(), object_methods()})
    for (const HelpEntry& d : list)
      if (const std::string_view known = d.name;
          known == name || (known.find(':') != known.npos && known.substr(known.find(':') + 1) == name))
        out += fmt::format("{}\n  {}\n", d.signature, d.text);
  out += section_text(name) + methods_text(name);
  if (!out.empty()) return out;
  if (out = type_of_actors(of(L).session(), name); !out.empty()) return out;
  std::vector<std::string> known;
  for (const auto& section : script::catalog())
    for (const Entry& e : section.entries) known.push_back(e.name);
  for (const HelpEntry& g : globals()) known.emplace_back(g.name);
  const std::string near = nearest(name, known);
  throw_invalid(fmt::format("help: nothing is called {:?}; {}", std::string_view(name),
                            near.empty() ? "help() lists what there is" : "did you mean \"" + near + "\"?"));
}

// Whether the value at an index is what a global name stands for: "spawn", "data.of".
bool is_global(lua_State* L, int at, std::string_view name) {
  const int top = lua_gettop(L);
  lua_pushglobaltable(L);
  while (!name.empty() && lua_istable(L, -1)) {
    push(L, name.substr(0, name.find('.')));
    lua_rawget(L, -2);
    name = name.find('.') == name.npos ? std::string_view() : name.substr(name.find('.') + 1);
  }
  const bool same = lua_rawequal(L, at, -1);
  lua_settop(L, top);
  return same;
}

std::string function_text(lua_State* L, int at) {
  for (const HelpEntry& g : globals())
    if (is_global(L, at, g.name)) return fmt::format("{}\n  {}\n", g.signature, g.text);
  std::string out;
  if (lua_iscfunction(L, at) && lua_getupvalue(L, at, 1)) {
    try {  // the name, if it is a function of a table of this shell
      if (lua_type(L, -1) == LUA_TSTRING) out = described(L, std::string(text_at(L, -1)));
    } catch (const Error&) {
    }
    lua_pop(L, 1);
  }
  return out;
}

std::string text_about(lua_State* L, int at) {
  if (lua_type(L, at) == LUA_TSTRING) return described(L, std::string(text_at(L, at)));
  if (auto* actor = get_if<AnyRef>(L, at)) {
    const AnyRef held = *actor;
    std::string out = held.str() + "\n";
    for (const Entry& m : of(L).session().methods(held))
      out += "  " + m.signature() + "\n" + (m.text.empty() ? "" : "    " + m.text + "\n");
    return out;
  }
  if (lua_isfunction(L, at)) {
    const std::string out = function_text(L, at);
    return out.empty() ? "a function of Lua\n" : out;
  }
  if (lua_istable(L, at))
    for (const auto& section : script::catalog())
      if (is_global(L, at, section.prefix)) return section_text(section.prefix);
  if (lua_type(L, at) == LUA_TUSERDATA && luaL_getmetafield(L, at, "__name") == LUA_TSTRING) {
    const std::string type(text_at(L, -1));
    lua_pop(L, 1);
    return type + "\n" + methods_text(type);
  }
  if (lua_isnil(L, at)) return "nil: a name without a value\n";
  return fmt::format("a {}\n", luaL_typename(L, at));
}

int help(lua_State* L) {
  const std::string out = script::harmless(lua_isnone(L, 1) ? overview() : text_about(L, 1), 1 << 16);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}

int time_of(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  const auto begin = std::chrono::steady_clock::now();
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  for (int i = 1; i <= lua_gettop(L); ++i)
    if (auto* f = get_if<FutureObject>(L, i); f && !f->stays) {
      push(L, f->get(L));
      lua_replace(L, i);
    }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string line = seconds < 1e-3 ? fmt::format("{:.1f} us\n", seconds * 1e6)
                           : seconds < 1  ? fmt::format("{:.2f} ms\n", seconds * 1e3)
                                          : fmt::format("{:.3f} s\n", seconds);
  std::fwrite(line.data(), 1, line.size(), stdout);
  return lua_gettop(L);
}

void names_of_table(lua_State* L, std::set<std::string>& out) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && !text_at(L, -2).starts_with("__")) out.emplace(text_at(L, -2));
}

}  // namespace

std::string about_function(lua_State* L, int at) {
  if (!lua_iscfunction(L, at)) return {};
  return is_global(L, at, "help") ? overview() : function_text(L, at);
}

std::vector<std::string> Interpreter::completions(const std::string& line) {
  std::set<std::string> found;
  // The word at the end: names, with dots and colons between; or what follows an open quote.
  size_t begin = line.size();
  while (begin > 0 && (is_word(line[begin - 1]) || line[begin - 1] == '.' || line[begin - 1] == ':')) --begin;
  const std::string word = line.substr(begin);
  const size_t last = word.find_last_of(".:");
  const std::string stem = last == std::string::npos ? "" : word.substr(0, last + 1),
                    start = last == std::string::npos ? word : word.substr(last + 1);
  const int top = lua_gettop(L_);
  const bool quoted = begin > 0 && (line[begin - 1] == '"' || line[begin - 1] == '\'');
  std::set<std::string> names;
  try {
    if (quoted) {
      for (const auto& worker : session().cluster().workers()) {
        names.insert(worker);
        for (const auto& type : session().types(Place(worker).in(session().worker().members())))
          names.insert(type.name);
      }
      if (line.substr(0, begin).find("help") != std::string::npos)
        for (const auto& section : script::catalog())
          for (const Entry& e : section.entries) names.insert(e.name);
    } else if (stem.empty()) {
      lua_pushglobaltable(L_);
      names_of_table(L_, names);
      for (const char* keyword :
           {"local", "function", "return", "while", "repeat", "until", "break", "false"})
        names.insert(keyword);
    } else {
      for (const auto& section : script::catalog())
        if (section.prefix + "." == stem)
          for (const Entry& e : section.entries) names.insert(e.name);
      // The value that the path leads to, without running anything.
      lua_pushglobaltable(L_);
      size_t at = 0;
      bool there = true;
      while (at < stem.size() && there) {
        const size_t end = stem.find_first_of(".:", at);
        push(L_, std::string_view(stem).substr(at, end - at));
        there = lua_istable(L_, -2);
        if (there) lua_rawget(L_, -2);
        at = end + 1;
      }
      if (there && lua_istable(L_, -1)) names_of_table(L_, names);
      if (there && lua_isuserdata(L_, -1)) {
        if (auto* actor = get_if<AnyRef>(L_, -1))
          for (const Entry& m : session().methods(*actor)) names.insert(m.name);
        if (get_if<Tensor>(L_, -1))
          for (const Entry& e : script::catalog()[0].entries) names.insert(e.name);
        if (luaL_getmetafield(L_, -1, "methods") == LUA_TTABLE) names_of_table(L_, names);
      }
    }
  } catch (const std::exception&) {  // no cluster, an interrupt: then there is nothing to offer
  }
  lua_settop(L_, top);
  for (const std::string& name : names)
    if (name.starts_with(start)) found.insert(stem + name);
  return {found.begin(), found.end()};
}

void open_help(lua_State* L) {
  lua_register(L, "help", guarded<help>);
  lua_register(L, "time", guarded<time_of>);
}

std::string reference_text() {
  std::string out =
      "# The shell\n\n"
      "What the shell has of its own. Written by `troupe repl --reference`; a test compares it with the "
      "tables that it comes from. `ops.*`, `nn.*` and `optim.*` have what [operators](operators.md) lists, "
      "with the "
      "names and defaults there. [The tutorial](../tutorial/shell.md) shows how to use it.\n\n"
      "## Functions\n\n| | |\n|---|---|\n";
  const auto cell = [](std::string text) {
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
    return text;
  };
  for (const HelpEntry& g : globals()) out += fmt::format("| `{}` | {} |\n", cell(g.signature), cell(g.text));
  out +=
      "\n## Methods of objects\n\nTensors also have every operator as a method: `x:relu()`, "
      "`x:sum()`.\n\n| | |\n|---|---|\n";
  for (const HelpEntry& m : object_methods())
    out += fmt::format("| `{}` | {} |\n", cell(m.signature), cell(m.text));
  for (const auto& section : script::catalog()) {
    if (section.prefix != "data") continue;
    out += fmt::format("\n## {}\n\n| `{}.*` | |\n|---|---|\n", section.title, section.prefix);
    for (const Entry& e : section.entries)
      out += fmt::format("| `{}` | {} |\n", cell(e.signature()), cell(e.text));
  }
  return out;
}

}  // namespace troupe::repl
