// Workers in Lua that the script claims for itself.
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "troupe/cluster/claim.h"

namespace troupe::repl {

using ClaimObject = std::shared_ptr<Claim>;
template <>
struct ObjectName<ClaimObject> {
  static constexpr const char* value = "claim";
};

namespace {

// Scripts write claim(2) or claim{"w1", "w2"}, and {share = true} behind it.
int make_claim(lua_State* L) {
  ClaimOptions options;
  if (!lua_isnoneornil(L, 2)) {
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "share");
    options.share = lua_toboolean(L, -1) != 0;
    lua_pop(L, 1);
  }
  Cluster& cluster = of(L).session().cluster();
  if (lua_isinteger(L, 1)) {
    const auto count = static_cast<size_t>(std::max<lua_Integer>(lua_tointeger(L, 1), 0));
    put<ClaimObject>(L, std::make_shared<Claim>(cluster, count, options));
    return 1;
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  std::vector<std::string> names;
  for (lua_Integer i = 1; lua_geti(L, 1, i) != LUA_TNIL; ++i, lua_pop(L, 1))
    names.emplace_back(text_at(L, -1));
  lua_pop(L, 1);
  put<ClaimObject>(L, std::make_shared<Claim>(cluster, names, options));
  return 1;
}
int claimed_workers(lua_State* L) {
  ValueList names;
  for (const std::string& name : get<ClaimObject>(L, 1)->workers()) names.emplace_back(name);
  push(L, Value(std::move(names)));
  return 1;
}

}  // namespace

void open_claims(lua_State* L) {
  make_type<ClaimObject>(L, {{"workers", guarded<claimed_workers>},
                             {"close", free_object<ClaimObject>},
                             {"__close", free_object<ClaimObject>}});
  lua_register(L, "claim", guarded<make_claim>);
}

}  // namespace troupe::repl
