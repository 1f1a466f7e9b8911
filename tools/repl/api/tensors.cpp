// Tensors in Lua: operators by name, arithmetic, slicing.
#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/engine.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "ops/ops.h"
#include "script/operators.h"
#include "script/show.h"
#include "script/tensors.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {
namespace {

using script::run_operator;

// ops.NAME(...): the name is the function's upvalue.
int call_operator(lua_State* L) {
  const std::string name(text_at(L, lua_upvalueindex(1)));
  ValueMap named;
  ValueList positional = arguments_from(L, 1, &named);
  script::gather_sizes(name, positional);
  script::Session::check();
  return push_results(L, run_operator(name, std::move(positional), std::move(named)));
}

int operator_named(lua_State* L, std::string_view name) {
  if (name == "repeat_") name = "repeat";  // a keyword of Lua
  const auto all = script::operators();
  find_entry(all, name, "[ops] unknown operator");
  push(L, name);
  lua_pushcclosure(L, guarded<call_operator>, 1);
  return 1;
}

int ops_index(lua_State* L) {
  operator_named(L, text_at(L, 2));
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);  // the next time it is there
  return 1;
}

template <const char* Name>
int binary(lua_State* L) {
  ValueList in{value_at(L, 1), value_at(L, 2)};
  return push_results(L, run_operator(Name, std::move(in)));
}
constexpr char kAdd[] = "add", kSub[] = "sub", kMul[] = "mul", kDiv[] = "div", kPow[] = "pow",
               kMod[] = "remainder", kFloor[] = "floor_divide";

// Lua makes a boolean of what a comparison gives.
int no_comparison(lua_State*) {
  throw_invalid(
      "==, < and <= compare no elements of tensors; x:eq(y), x:ne(y), x:lt(y), x:le(y), x:gt(y), x:ge(y) do, "
      "and ops.allclose(x, y) gives true or false");
}

int negative(lua_State* L) { return push_results(L, run_operator("neg", {get<Tensor>(L, 1)})); }

// ---- slicing

std::optional<std::vector<TensorIndex>> index_at(lua_State* L, int at);

// "1:, ::2, None, ..., 0" as PyTorch has it between brackets.
std::vector<TensorIndex> indices_of(std::string_view text) {
  const auto refuse = [&]() __attribute__((noreturn)) {
    throw_invalid("\"" + std::string(text) +
                  "\" is no index; what is: x[0], x[-1], x[\"1:, ::2\"], x[\"..., None\"], x[{0, 1}], "
                  "x[mask], x[{i, j}]");
  };
  const auto number = [&](std::string_view s) -> std::optional<int64_t> {
    while (s.starts_with(" ")) s.remove_prefix(1);
    while (s.ends_with(" ")) s.remove_suffix(1);
    if (s.empty()) return {};
    size_t used = 0;
    int64_t n = 0;
    try {
      n = std::stoll(std::string(s), &used);
    } catch (const std::exception&) {
      refuse();
    }
    if (used != s.size()) refuse();
    return n;
  };
  std::vector<TensorIndex> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string_view part = text.substr(at, comma - at);
    at = comma + 1;
    while (part.starts_with(" ")) part.remove_prefix(1);
    while (part.ends_with(" ")) part.remove_suffix(1);
    if (part.empty() && comma == text.size() && !out.empty()) break;  // "0," is "0"
    if (part == "...") {
      out.emplace_back(Ellipsis);
    } else if (part == "None") {
      out.emplace_back(None);
    } else if (const size_t first = part.find(':'); first != std::string_view::npos) {
      const size_t second = part.find(':', first + 1);
      const auto bound = [](std::optional<int64_t> n) { return n ? Slice::Bound(*n) : Slice::Bound(None); };
      out.emplace_back(Slice(
          bound(number(part.substr(0, first))),
          bound(
              number(part.substr(first + 1, second == std::string_view::npos ? second : second - first - 1))),
          second == std::string_view::npos ? Slice::Bound(None) : bound(number(part.substr(second + 1)))));
    } else if (const auto n = number(part)) {
      out.emplace_back(*n);
    } else {
      refuse();
    }
  }
  return out;
}

// {i, "1:", 0}, with a tensor or a text in it, is one index for each dimension; {0, 2} picks, and so does a
// mask.
std::vector<TensorIndex> indices_in(lua_State* L, int at) {
  const Value value = value_at(L, at);
  const auto* list = value.get_if<ValueList>();
  const auto stands_alone = [](const Value& v) { return v.get_if<Tensor>() || v.get_if<std::string>(); };
  if (!list || std::none_of(list->begin(), list->end(), stands_alone)) return {tensor_of_table(L, at, {})};
  std::vector<TensorIndex> out;
  for (size_t i = 0; i < list->size(); ++i) {
    lua_rawgeti(L, at, static_cast<lua_Integer>(i + 1));
    auto one = index_at(L, lua_gettop(L));
    lua_pop(L, 1);
    if (!one)
      throw_invalid("an index of a dimension is a number, a tensor, a table or a text as \"1:\", got " +
                    (*list)[i].describe());
    out.insert(out.end(), one->begin(), one->end());
  }
  return out;
}

// What stands in brackets; none: it is the name of a method.
std::optional<std::vector<TensorIndex>> index_at(lua_State* L, int at) {
  if (lua_isinteger(L, at)) return std::vector<TensorIndex>{int64_t{lua_tointeger(L, at)}};
  if (lua_type(L, at) == LUA_TNUMBER) {
    if (const double n = lua_tonumber(L, at); std::trunc(n) == n)
      return std::vector<TensorIndex>{static_cast<int64_t>(n)};
    throw_invalid("an index has to be a whole number");
  }
  if (auto* t = get_if<Tensor>(L, at)) return std::vector<TensorIndex>{*t};
  if (lua_istable(L, at)) return indices_in(L, at);
  const std::string_view text = text_at(L, at);
  if (!text.empty() &&
      (is_digit(text[0]) || std::string_view("-:.").find(text[0]) != std::string_view::npos ||
       text.starts_with("None")))
    return indices_of(text);
  return {};
}

// x.shape[0], x.shape[-1]
int size_not_there(lua_State* L) {
  if (lua_isinteger(L, 2) && lua_tointeger(L, 2) < 1)
    throw_invalid(
        "x.shape is a table of Lua, which counts from 1; x:size(0) and x:size(-1) count as PyTorch does");
  return 0;
}

int tensor_index(lua_State* L) {
  const Tensor& t = get<Tensor>(L, 1);
  if (const auto index = index_at(L, 2)) {
    push_tensor(L, std::as_const(t).index(*index));
    return 1;
  }
  const std::string_view name = text_at(L, 2);
  if (name == "shape") {
    lua_newtable(L);
    for (int d = 0; d < t.dim(); ++d) {
      lua_pushinteger(L, t.shape()[d]);
      lua_rawseti(L, -2, d + 1);
    }
    luaL_setmetatable(L, "sizes");
    return 1;
  }
  if (name == "dtype") return push(L, std::string_view(troupe::name(t.dtype()))), 1;
  if (name == "grad") {
    if (const Tensor g = t.grad(); g.defined())
      push_tensor(L, g);
    else
      lua_pushnil(L);
    return 1;
  }
  if (name == "requires_grad") return lua_pushboolean(L, t.requires_grad()), 1;
  if (push_method(L)) return 1;
  return operator_named(L, name);
}

// In the dtype of `t`, which must hold them; but fractions for integers stay what they are.
Tensor elements_for(lua_State* L, int at, const Tensor& t) {
  if (!is_floating(t.dtype()))
    if (Tensor natural = tensor_of_table(L, at, {}); is_floating(natural.dtype())) return natural;
  return tensor_of_table(L, at, t.dtype());
}

int tensor_newindex(lua_State* L) {
  Tensor& t = get<Tensor>(L, 1);
  if (const auto index = index_at(L, 2)) {
    const Value value = value_at(L, 3);
    if (const auto* source = value.get_if<Tensor>())
      t.index_put_(*index, *source);
    else if (value.get_if<ValueList>())
      t.index_put_(*index, elements_for(L, 3, t));
    else if (const auto* i = value.get_if<int64_t>())
      t.index_put_(*index, Scalar(*i));
    else if (const auto* d = value.get_if<double>())
      t.index_put_(*index, Scalar(*d));
    else if (const auto* b = value.get_if<bool>())
      t.index_put_(*index, Scalar(*b));
    else
      throw_invalid("elements of a tensor are numbers or tensors, got " + value.describe());
    return 0;
  }
  const std::string_view name = text_at(L, 2);
  if (name == "requires_grad") {
    t.requires_grad_(lua_toboolean(L, 3));
    return 0;
  }
  if (name == "grad") {
    t.set_grad(lua_isnil(L, 3) ? Tensor() : tensor_at(L, 3));
    return 0;
  }
  throw_invalid("a tensor has no field \"" + std::string(name) +
                "\" to set; there are: requires_grad, grad, and x[...] = ...");
}

// ---- methods that are no operators

int item(lua_State* L) {
  const Tensor& t = get<Tensor>(L, 1);
  if (t.numel() == 1 && t.dtype() == boolean)
    lua_pushboolean(L, t.item() != 0);
  else if (t.numel() == 1 && (t.dtype() == int64 || t.dtype() == int32 || t.dtype() == uint8))
    lua_pushinteger(L, t.detach().to_vector<int64_t>()[0]);
  else
    lua_pushnumber(L, t.item());
  return 1;
}

void push_elements(lua_State* L, const Tensor& t, int dim, int64_t& at, const std::vector<double>& values,
                   const std::vector<int64_t>& integers) {
  if (dim == t.dim()) {
    if (t.dtype() == boolean)
      lua_pushboolean(L, values[static_cast<size_t>(at)] != 0);
    else if (!integers.empty())
      lua_pushinteger(L, integers[static_cast<size_t>(at)]);
    else
      lua_pushnumber(L, values[static_cast<size_t>(at)]);
    ++at;
    return;
  }
  luaL_checkstack(L, 3, "too many dimensions");
  lua_createtable(L, static_cast<int>(std::min<int64_t>(t.shape()[dim], INT_MAX)), 0);
  for (int64_t i = 0; i < t.shape()[dim]; ++i) {
    push_elements(L, t, dim + 1, at, values, integers);
    lua_rawseti(L, -2, i + 1);
  }
}

int to_table(lua_State* L) {
  const Tensor t = get<Tensor>(L, 1).detach();
  const bool whole = t.dtype() == int64 || t.dtype() == int32 || t.dtype() == uint8;
  int64_t at = 0;
  push_elements(L, t, 0, at, t.to_vector<double>(), whole ? t.to_vector<int64_t>() : std::vector<int64_t>());
  return 1;
}

int size(lua_State* L) {
  const Tensor& t = get<Tensor>(L, 1);
  if (lua_isnoneornil(L, 2)) {
    lua_pushliteral(L, "shape");
    lua_replace(L, 2);
    return tensor_index(L);
  }
  lua_pushinteger(L, t.size(luaL_checkinteger(L, 2)));
  return 1;
}

int length(lua_State* L) {
  lua_pushinteger(L, get<Tensor>(L, 1).size(0));
  return 1;
}

// for i, row in ipairs(x): from 0 on, as x[i]. pairs(x) gives the same.
int next_row(lua_State* L) {
  const Tensor& t = get<Tensor>(L, 1);
  const int64_t i = luaL_checkinteger(L, 2) + 1;
  if (i >= t.size(0)) return 0;
  lua_pushinteger(L, i);
  push_tensor(L, std::as_const(t).index({i}));
  return 2;
}

int rows(lua_State* L) {
  (void)get<Tensor>(L, 1).size(0);  // refuses a 0-d one
  lua_pushcfunction(L, guarded<next_row>);
  lua_pushvalue(L, 1);
  lua_pushinteger(L, -1);
  return 3;
}

// Lua's own, which begins at 1, for all but tensors: it is the upvalue.
int ipairs(lua_State* L) {
  if (get_if<Tensor>(L, 1)) return rows(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

int to_string(lua_State* L) {
  push(L, std::string_view(script::shown(get<Tensor>(L, 1))));
  return 1;
}

int backward(lua_State* L) {
  const Tensor root = get<Tensor>(L, 1);
  script::Session::check();
  autograd::backward(root, lua_isnoneornil(L, 2) ? Tensor() : tensor_at(L, 2));
  return 0;
}

int requires_grad_(lua_State* L) {
  get<Tensor>(L, 1).requires_grad_(lua_isnone(L, 2) || lua_toboolean(L, 2));
  lua_settop(L, 1);
  return 1;
}

int detach(lua_State* L) {
  push_tensor(L, get<Tensor>(L, 1).detach());
  return 1;
}

int numel(lua_State* L) { return lua_pushinteger(L, get<Tensor>(L, 1).numel()), 1; }
int dim(lua_State* L) { return lua_pushinteger(L, get<Tensor>(L, 1).dim()), 1; }

// tensor{{1, 2}, {3, 4}}, tensor({1, 2}, "float64")
int make_tensor(lua_State* L) {
  std::optional<DType> dtype;
  if (!lua_isnoneornil(L, 2)) {
    const Value v = value_at(L, 2);
    const Value* named = v.get_if<ValueMap>() && v.get_if<ValueMap>()->contains("dtype")
                             ? &v.get_if<ValueMap>()->at("dtype")
                             : &v;
    if (!named->get_if<std::string>())
      throw_invalid("tensor(elements, dtype): a dtype is a string, got " + v.describe());
    dtype = Codec<DType>::from(*named);
  }
  if (lua_istable(L, 1))
    push_tensor(L, tensor_of_table(L, 1, dtype));
  else if (lua_type(L, 1) == LUA_TNUMBER || lua_isboolean(L, 1))
    push_tensor(L,
                tensor(Codec<Scalar>::from(value_at(L, 1)), dtype ? TensorOptions(*dtype) : TensorOptions()));
  else if (dtype)
    push_tensor(L, ops::to(tensor_at(L, 1), *dtype));
  else
    push_tensor(L, tensor_at(L, 1).clone());
  return 1;
}

int no_grad(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  const NoGradGuard none;
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

int manual_seed_(lua_State* L) {
  manual_seed(static_cast<uint64_t>(luaL_checkinteger(L, 1)));
  return 0;
}

}  // namespace

void push_tensor(lua_State* L, Tensor tensor) {
  if (!tensor.defined()) return lua_pushnil(L);
  const size_t bytes = tensor.storage()->size();
  const bool alone = tensor.storage()->use_count() == 1;
  put<Tensor>(L, std::move(tensor));
  if (alone) of(L).charge(L, bytes);
}

Tensor tensor_at(lua_State* L, int at) {
  const Value v = value_at(L, at);
  if (const auto* t = v.get_if<Tensor>()) return *t;
  if (const auto* i = v.get_if<int64_t>()) return tensor(*i, int64);
  if (const auto* d = v.get_if<double>()) return tensor(*d, float32);
  throw_invalid("expected a tensor, got " + v.describe());
}

Tensor tensor_of_table(lua_State* L, int at, std::optional<DType> dtype) {
  return script::tensor_of(value_at(L, at), dtype, "table");
}

void open_tensors(lua_State* L) {
  make_type<Tensor>(L, {{"__add", guarded<binary<kAdd>>},
                        {"__sub", guarded<binary<kSub>>},
                        {"__mul", guarded<binary<kMul>>},
                        {"__div", guarded<binary<kDiv>>},
                        {"__pow", guarded<binary<kPow>>},
                        {"__mod", guarded<binary<kMod>>},
                        {"__idiv", guarded<binary<kFloor>>},
                        {"__unm", guarded<negative>},
                        {"__eq", guarded<no_comparison>},
                        {"__lt", guarded<no_comparison>},
                        {"__le", guarded<no_comparison>},
                        {"__len", guarded<length>},
                        {"__pairs", guarded<rows>},
                        {"__tostring", guarded<to_string>},
                        {"item", guarded<item>},
                        {"tolist", guarded<to_table>},
                        {"size", guarded<size>},
                        {"numel", guarded<numel>},
                        {"dim", guarded<dim>},
                        {"backward", guarded<backward>},
                        {"detach", guarded<detach>},
                        {"requires_grad_", guarded<requires_grad_>}});
  luaL_getmetatable(L, ObjectName<Tensor>::value);
  lua_pushcfunction(L, guarded<tensor_index>);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, guarded<tensor_newindex>);
  lua_setfield(L, -2, "__newindex");
  lua_pop(L, 1);
  make_type<Bytes>(L, {});
  luaL_newmetatable(L, "sizes");
  lua_pushcfunction(L, guarded<size_not_there>);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);

  open_table(L, "ops", guarded<ops_index>);
  lua_register(L, "tensor", guarded<make_tensor>);
  lua_getglobal(L, "ipairs");
  lua_pushcclosure(L, guarded<ipairs>, 1);
  lua_setglobal(L, "ipairs");
  lua_register(L, "no_grad", guarded<no_grad>);
  lua_register(L, "manual_seed", guarded<manual_seed_>);
}

}  // namespace troupe::repl
