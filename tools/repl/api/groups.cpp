// Process groups and meshes in Lua.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "script/groups.h"
#include "tools/repl/lua/group_objects.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {
namespace {

// The thread acts as its worker, in the context that is open.
class AsRank {
 public:
  explicit AsRank(lua_State* L) : worker_(of(L).session()), step_(of(L).step_of(L)) {
    if (step_ && step_->open()) in_.emplace(step_->context());
  }

 private:
  const script::AsWorker worker_;
  const std::shared_ptr<script::Step> step_;
  std::optional<autograd::Context::Guard> in_;
};

size_t rank_at(lua_State* L, int at, const Group& group) {
  return script::rank_in(group, luaL_checkinteger(L, at));
}

CollectiveOptions collective_options_at(lua_State* L, int at) {
  return script::collective_options(options_at(L, at));
}

// The members at an index: references, or names or numbers of workers; all workers if there is nothing.
Group group_at(lua_State* L, int at, const std::string& name) {
  return script::group_of(of(L).session(), lua_isnoneornil(L, at) ? Value() : value_at(L, at), name);
}

std::string name_at(lua_State* L, int at, const char* standard) {
  return lua_isnoneornil(L, at) ? standard : std::string(text_at(L, at));
}

// group{a, b}, group({"w1", "w2"}, "name"), group(): all workers
int make_group(lua_State* L) {
  put<Group>(L, group_at(L, 1, name_at(L, 2, "")));
  return 1;
}

// ---- what a group is

int group_rank(lua_State* L) {
  const AsRank here(L);
  lua_pushinteger(L, static_cast<lua_Integer>(get<Group>(L, 1).rank()));
  return 1;
}
int group_size(lua_State* L) {
  lua_pushinteger(L, static_cast<lua_Integer>(get<Group>(L, 1).size()));
  return 1;
}
int group_hosts(lua_State* L) {
  lua_pushinteger(L, static_cast<lua_Integer>(get<Group>(L, 1).hosts()));
  return 1;
}
int group_label(lua_State* L) {
  const Group& g = get<Group>(L, 1);
  push(L, std::string_view(g.label(rank_at(L, 2, g))));
  return 1;
}
int group_subset(lua_State* L) {
  const Group& g = get<Group>(L, 1);
  std::vector<size_t> ranks;
  for (const int64_t rank : Codec<std::vector<int64_t>>::from(value_at(L, 2))) {
    lua_pushinteger(L, rank);
    ranks.push_back(rank_at(L, -1, g));
  }
  put<Group>(L, g.subset(ranks, std::string(text_at(L, 3))));
  return 1;
}
int group_survivors(lua_State* L) {
  const AsRank here(L);
  put<Group>(L, get<Group>(L, 1).survivors());
  return 1;
}
int group_ways(lua_State* L) {
  const lua_Integer bytes = luaL_checkinteger(L, 2);
  if (bytes < 0) throw_invalid(fmt::format("[group] {} bytes; expected 0 or more", bytes));
  push(L, std::string_view(get<Group>(L, 1).print(static_cast<size_t>(bytes))));
  return 1;
}
int group_to_string(lua_State* L) {
  const Group& g = get<Group>(L, 1);
  std::string all;
  for (size_t r = 0; r < g.size(); ++r) all += (r ? ", " : ": ") + g.label(r);
  push(L, std::string_view(fmt::format("group {}of {}{}", g.name().empty() ? "" : "\"" + g.name() + "\" ",
                                       g.size(), all)));
  return 1;
}
int same_group(lua_State* L) {
  const auto *a = get_if<Group>(L, 1), *b = get_if<Group>(L, 2);
  lua_pushboolean(L, a && b && *a == *b);
  return 1;
}

// ---- its operations, of which the script does the part of its worker

Future<Value> as_value(const Future<Tensor>& f) {
  return f.then([](const Tensor& t) { return Codec<Tensor>::to(t); });
}
Future<Value> as_value(const Future<Tensors>& f) {
  return f.then([](const Tensors& ts) { return Codec<Tensors>::to(ts); });
}
Future<Value> as_value(const Future<void>& f) {
  return f.then([] { return Value(); });
}
template <class T>
int push_operation(lua_State* L, const char* what, const Future<T>& f) {
  return push_future(L, as_value(f), what, !std::is_void_v<T>);
}
Tensors tensors_of(lua_State* L, int at) { return Codec<Tensors>::from(value_at(L, at)); }
// nil: undefined, of those that bring nothing.
Tensor tensor_or_none(lua_State* L, int at) { return lua_isnil(L, at) ? Tensor() : tensor_at(L, at); }

int all_reduce(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  const CollectiveOptions options = collective_options_at(L, 3);
  if (lua_istable(L, 2)) return push_operation(L, "all_reduce", g.all_reduce(tensors_of(L, 2), options));
  return push_operation(L, "all_reduce", g.all_reduce(tensor_at(L, 2), options));
}
int reduce(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  return push_operation(L, "reduce",
                        g.reduce(tensor_at(L, 2), rank_at(L, 3, g), collective_options_at(L, 4)));
}
int reduce_scatter(lua_State* L) {
  const AsRank here(L);
  return push_operation(L, "reduce_scatter",
                        get<Group>(L, 1).reduce_scatter(tensor_at(L, 2), collective_options_at(L, 3)));
}
int broadcast(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  const size_t root = rank_at(L, 3, g);
  const CollectiveOptions options = collective_options_at(L, 4);
  if (lua_istable(L, 2)) return push_operation(L, "broadcast", g.broadcast(tensors_of(L, 2), root, options));
  return push_operation(L, "broadcast", g.broadcast(tensor_at(L, 2), root, options));
}
int scatter(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  return push_operation(L, "scatter",
                        g.scatter(tensor_or_none(L, 2), rank_at(L, 3, g), collective_options_at(L, 4)));
}
int gather(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  return push_operation(L, "gather",
                        g.gather(tensor_at(L, 2), rank_at(L, 3, g), collective_options_at(L, 4)));
}
int all_gather(lua_State* L) {
  const AsRank here(L);
  return push_operation(L, "all_gather",
                        get<Group>(L, 1).all_gather(tensor_at(L, 2), collective_options_at(L, 3)));
}
int all_to_all(lua_State* L) {
  const AsRank here(L);
  return push_operation(L, "all_to_all",
                        get<Group>(L, 1).all_to_all(tensors_of(L, 2), collective_options_at(L, 3)));
}
int barrier(lua_State* L) {
  const AsRank here(L);
  return push_operation(L, "barrier", get<Group>(L, 1).barrier(collective_options_at(L, 2)));
}
int tune(lua_State* L) {
  const AsRank here(L);
  const auto text = get<Group>(L, 1).tune().then([](const std::string& s) { return Value(s); });
  return push_future(L, text, "tune", true);
}

std::optional<Duration> timeout_at(lua_State* L, int at) {
  if (lua_isnoneornil(L, at)) return {};
  return script::time_limit(luaL_checknumber(L, at));
}
int send(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  return push_operation(L, "send",
                        g.send(tensor_at(L, 2), rank_at(L, 3, g), name_at(L, 4, ""), timeout_at(L, 5)));
}
int receive(lua_State* L) {
  const AsRank here(L);
  const Group& g = get<Group>(L, 1);
  return push_operation(L, "receive", g.receive(rank_at(L, 2, g), name_at(L, 3, ""), timeout_at(L, 4)));
}

// ---- meshes

// mesh({{"dp", 2}, {"pp", 2}}[, members[, name]])
int make_mesh(lua_State* L) {
  const auto dims = Codec<std::vector<std::pair<std::string, int64_t>>>::from(value_at(L, 1));
  put<Mesh>(L, script::mesh_of(of(L).session(), dims, lua_isnoneornil(L, 2) ? Value() : value_at(L, 2),
                               name_at(L, 3, "mesh")));
  return 1;
}
int mesh_group(lua_State* L) {
  const AsRank here(L);
  put<Group>(L, get<Mesh>(L, 1)[text_at(L, 2)]);
  return 1;
}
int mesh_groups(lua_State* L) {
  const std::vector<Group> groups = get<Mesh>(L, 1).groups(text_at(L, 2));
  lua_createtable(L, static_cast<int>(groups.size()), 0);
  for (size_t i = 0; i < groups.size(); ++i) {
    put<Group>(L, groups[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  return 1;
}
int mesh_all(lua_State* L) {
  put<Group>(L, get<Mesh>(L, 1).all());
  return 1;
}
int mesh_size(lua_State* L) {
  const Mesh& m = get<Mesh>(L, 1);
  lua_pushinteger(L,
                  static_cast<lua_Integer>(lua_isnoneornil(L, 2) ? m.all().size() : m.size(text_at(L, 2))));
  return 1;
}
int mesh_length(lua_State* L) {
  lua_settop(L, 1);  // Lua gives it the mesh twice
  return mesh_size(L);
}
int mesh_coordinate(lua_State* L) {
  const AsRank here(L);
  lua_pushinteger(L, static_cast<lua_Integer>(get<Mesh>(L, 1).coordinate(text_at(L, 2))));
  return 1;
}
int mesh_to_string(lua_State* L) {
  const Mesh& m = get<Mesh>(L, 1);
  std::string dims;
  for (const MeshDim& d : m.dims()) dims += fmt::format("{}{} {}", dims.empty() ? "" : " x ", d.name, d.size);
  push(L, std::string_view(fmt::format("mesh {} of {}", dims, m.all().size())));
  return 1;
}

}  // namespace

void open_groups(lua_State* L) {
  make_type<Group>(L, {{"rank", guarded<group_rank>},
                       {"size", guarded<group_size>},
                       {"hosts", guarded<group_hosts>},
                       {"label", guarded<group_label>},
                       {"subset", guarded<group_subset>},
                       {"survivors", guarded<group_survivors>},
                       {"ways", guarded<group_ways>},
                       {"tune", guarded<tune>},
                       {"all_reduce", guarded<all_reduce>},
                       {"reduce", guarded<reduce>},
                       {"reduce_scatter", guarded<reduce_scatter>},
                       {"broadcast", guarded<broadcast>},
                       {"scatter", guarded<scatter>},
                       {"gather", guarded<gather>},
                       {"all_gather", guarded<all_gather>},
                       {"all_to_all", guarded<all_to_all>},
                       {"barrier", guarded<barrier>},
                       {"send", guarded<send>},
                       {"receive", guarded<receive>},
                       {"__len", guarded<group_size>},
                       {"__eq", guarded<same_group>},
                       {"__tostring", guarded<group_to_string>}});
  make_type<Mesh>(L, {{"group", guarded<mesh_group>},
                      {"groups", guarded<mesh_groups>},
                      {"all", guarded<mesh_all>},
                      {"size", guarded<mesh_size>},
                      {"coordinate", guarded<mesh_coordinate>},
                      {"__len", guarded<mesh_length>},
                      {"__tostring", guarded<mesh_to_string>}});
  lua_register(L, "group", guarded<make_group>);
  lua_register(L, "mesh", guarded<make_mesh>);
}

}  // namespace troupe::repl
