// Sources larger than memory, and feeds, in Lua.
#include "script/feeds.h"

#include <chrono>

#include "core/base/error.h"
#include "core/entry/entry.h"
#include "data/streams/described.h"
#include "script/modules.h"
#include "tools/repl/lua/dataset_object.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

using FeedObject = std::unique_ptr<datasets::Feed>;
template <>
struct ObjectName<FeedObject> {
  static constexpr const char* value = "feed";
};

namespace {

// A table of sources, or of pairs of a source and a number: f(description, number or 1).
template <class F>
void each_source(lua_State* L, const char* what, const F& f) {
  luaL_checktype(L, 1, LUA_TTABLE);
  for (lua_Integer i = 1; lua_rawgeti(L, 1, i) != LUA_TNIL; ++i) {
    double weight = 1;
    if (lua_istable(L, -1)) {
      lua_rawgeti(L, -1, 2);
      if (lua_isnumber(L, -1)) weight = lua_tonumber(L, -1);
      lua_pop(L, 1);
      lua_rawgeti(L, -1, 1);
      lua_remove(L, -2);
    }
    const auto* source = get_if<SourceObject>(L, -1);
    if (!source)
      throw_invalid(std::string("[data] ") + what + ": entry " + std::to_string(i) + " is no source");
    f(source->described, weight);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

// Lua says data.mixed({{wiki, 0.7}, {code, 0.3}}[, size])
int mix_sources(lua_State* L) {
  ValueList parts;
  each_source(L, "mixed",
              [&](const ValueMap& source, double weight) { parts.push_back(ValueList{source, weight}); });
  put<SourceObject>(L, {{{"kind", std::string("mixed")},
                         {"parts", std::move(parts)},
                         {"size", int64_t{luaL_optinteger(L, 2, 0)}}}});
  return 1;
}
int put_side_by_side(lua_State* L) {
  ValueList sources;
  each_source(L, "side_by_side", [&](const ValueMap& source, double) { sources.push_back(source); });
  put<SourceObject>(L, {{{"kind", std::string("side_by_side")}, {"sources", std::move(sources)}}});
  return 1;
}

const datasets::Source& opened_at(lua_State* L, int at) {
  auto& source = get<SourceObject>(L, at);
  if (!source.opened) source.opened = datasets::described_source(source.described);
  return *source.opened;
}
int source_length(lua_State* L) {
  lua_pushinteger(L, opened_at(L, 1).size());
  return 1;
}
// Lua says s:read(number), from 0.
int source_read(lua_State* L) {
  const auto& source = opened_at(L, 1);
  const int64_t number = luaL_checkinteger(L, 2);
  if (number < 0 || number >= source.size())
    throw_invalid("[data] the source has " + std::to_string(source.size()) + " samples, from 0; got " +
                  std::to_string(number));
  push(L, Value(source.read(number)));
  return 1;
}
int source_to_string(lua_State* L) {
  push(L, std::string_view("source: " + text_of(Value(get<SourceObject>(L, 1).described))));
  return 1;
}

// Lua says feed(source[, options])
int open_feed(lua_State* L) {
  const auto* source = get_if<SourceObject>(L, 1);
  put<FeedObject>(L, script::make_feed(of(L).session(), source ? Value(source->described) : value_at(L, 1),
                                       options_at(L, 2)));
  return 1;
}
int feed_state(lua_State* L) {
  push(L, script::state_value(get<FeedObject>(L, 1)->state()));
  return 1;
}
int feed_load(lua_State* L) {
  StateDict state;
  for (auto& [name, value] : options_at(L, 2))
    if (auto* t = value.get_if<Tensor>()) state.emplace(name, *t);
  get<FeedObject>(L, 1)->load_state(state);
  return 0;
}
int feed_next(lua_State* L) {
  auto batch = get<FeedObject>(L, 1)->next();
  if (!batch)
    lua_pushnil(L);
  else
    push(L, Value(std::move(batch->fields)));
  return 1;
}
int feed_report(lua_State* L) {
  const auto& report = get<FeedObject>(L, 1)->report();
  push(L, Value(ValueMap{{"rows", report.rows},
                         {"broken", report.broken},
                         {"waited", std::chrono::duration<double>(report.waited).count()},
                         {"rows_per_second", report.rows_per_second()}}));
  return 1;
}

}  // namespace

void open_feeds(lua_State* L) {
  make_type<SourceObject>(L, {{"read", guarded<source_read>},
                              {"__len", guarded<source_length>},
                              {"__tostring", guarded<source_to_string>}});
  make_type<FeedObject>(L, {{"next", guarded<feed_next>},
                            {"state", guarded<feed_state>},
                            {"load", guarded<feed_load>},
                            {"report", guarded<feed_report>},
                            {"close", free_object<FeedObject>},
                            {"__close", free_object<FeedObject>},
                            {"__call", guarded<feed_next>}});
  lua_register(L, "feed", guarded<open_feed>);
  lua_getglobal(L, "data");
  for (const Function& f :
       {Function{"mixed", guarded<mix_sources>}, Function{"side_by_side", guarded<put_side_by_side>}}) {
    lua_pushcfunction(L, f.f);
    lua_setfield(L, -2, f.name);
  }
  lua_pop(L, 1);
}

}  // namespace troupe::repl
