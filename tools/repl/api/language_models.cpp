// Language models in Lua, llm.*.
#include "script/language_models.h"
#include "core/base/seed_stream.h"
#include "data/datasets/token_file.h"
#include "llm/adapters.h"
#include "llm/pretrained.h"
#include "llm/tokenizer.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

using DecoderObject = std::shared_ptr<llm::Decoder>;
template <>
struct ObjectName<DecoderObject> {
  static constexpr const char* value = "decoder";
};
template <>
struct ObjectName<llm::Tokenizer> {
  static constexpr const char* value = "tokenizer";
};
template <>
struct ObjectName<datasets::TokenFile> {
  static constexpr const char* value = "tokens";
};
template <>
struct ObjectName<llm::ServedModel> {
  static constexpr const char* value = "served_model";
};

namespace {

using Ids = std::vector<int64_t>;

Ids ids_at(lua_State* L, int at) {
  const Value value = value_at(L, at);
  if (const auto* tensor = value.get_if<Tensor>()) return tensor->to(cpu).to_vector<int64_t>();
  return Codec<Ids>::from(value);
}

// Lua says llm.stages(mesh, folder or config.json[, options])
int make_stages(lua_State* L) {
  put<PipelinesObject>(L, script::language_stages(of(L).session(), get<Mesh>(L, 1),
                                                  std::string(text_at(L, 2)), options_at(L, 3)));
  return 1;
}
// Lua says llm.save(pipelines, folder)
int save_stages(lua_State* L) {
  script::save_language_model(*get<PipelinesObject>(L, 1), std::string(text_at(L, 2)));
  return 0;
}

// ---- a model in this process

int load_model(lua_State* L) {
  put<DecoderObject>(L, script::load_language_model(std::string(text_at(L, 1)), options_at(L, 2)));
  return 1;
}
int model_call(lua_State* L) {
  push_tensor(L, (*get<DecoderObject>(L, 1))(tensor_at(L, 2)));
  return 1;
}
// Lua says m:generate(ids[, options]); ids may be a list of lists.
int model_generate(lua_State* L) {
  llm::Decoder& model = *get<DecoderObject>(L, 1);
  const Value given = value_at(L, 2);
  const auto* list = given.get_if<ValueList>();
  const bool several = list && !list->empty() && list->front().get_if<ValueList>();
  const auto prompts = several ? Codec<std::vector<Ids>>::from(given) : std::vector<Ids>{ids_at(L, 2)};
  const auto texts = llm::generate(model, prompts, script::generate_options(options_at(L, 3)));
  push(L, several ? Codec<std::vector<Ids>>::to(texts) : Codec<Ids>::to(texts[0]));
  return 1;
}
int model_parameters(lua_State* L) {
  ValueList out;
  for (const Tensor& t : get<DecoderObject>(L, 1)->parameters())
    if (t.requires_grad()) out.emplace_back(t);
  push(L, Value(std::move(out)));
  return 1;
}
int model_state(lua_State* L) {
  ValueMap out;
  for (const auto& [name, t] : get<DecoderObject>(L, 1)->state_dict()) out[name] = t;
  push(L, Value(std::move(out)));
  return 1;
}
int model_save(lua_State* L) {
  llm::Decoder& model = *get<DecoderObject>(L, 1);
  const std::string folder(text_at(L, 2));
  model.options().lora ? llm::save_adapters(model, folder) : llm::save_pretrained(model, folder);
  return 0;
}
int model_merge(lua_State* L) {
  get<DecoderObject>(L, 1)->drop_adapters(true);
  return 0;
}
int model_to_string(lua_State* L) {
  push(L, std::string_view(get<DecoderObject>(L, 1)->str()));
  return 1;
}

// ---- tokens

int open_tokenizer(lua_State* L) {
  put<llm::Tokenizer>(L, llm::Tokenizer(std::string(text_at(L, 1))));
  return 1;
}
int tokenizer_encode(lua_State* L) {
  const bool special = lua_isnoneornil(L, 3) || lua_toboolean(L, 3);
  push(L, Codec<Ids>::to(get<llm::Tokenizer>(L, 1).encode(text_at(L, 2), special)));
  return 1;
}
int tokenizer_decode(lua_State* L) {
  const bool skip = lua_isnoneornil(L, 3) || lua_toboolean(L, 3);
  push(L, std::string_view(get<llm::Tokenizer>(L, 1).decode(ids_at(L, 2), skip)));
  return 1;
}
int open_token_file(lua_State* L) {
  put<datasets::TokenFile>(
      L, datasets::TokenFile(std::string(text_at(L, 1)), static_cast<int>(luaL_optinteger(L, 2, 2))));
  return 1;
}
// Lua says f:windows(context, count[, from, to])
int token_windows(lua_State* L) {
  const auto& file = get<datasets::TokenFile>(L, 1);
  Generator random(current_stream().next());
  const auto set = file.random_windows(luaL_checkinteger(L, 2), luaL_checkinteger(L, 3), random,
                                       luaL_optinteger(L, 4, 0), luaL_optinteger(L, 5, 0));
  push_tensor(L, set.x), push_tensor(L, set.y);
  return 2;
}
int token_count(lua_State* L) {
  lua_pushinteger(L, get<datasets::TokenFile>(L, 1).size());
  return 1;
}
// Lua says llm.write_tokens(file, ids[, bytes])
int write_tokens(lua_State* L) {
  datasets::write_token_file(std::string(text_at(L, 1)), ids_at(L, 2),
                             static_cast<int>(luaL_optinteger(L, 3, 2)));
  return 0;
}

// ---- a served model

int serve_model(lua_State* L) {
  put<llm::ServedModel>(
      L, script::serve_language_model(of(L).session(), std::string(text_at(L, 1)), options_at(L, 2)));
  return 1;
}
int served_generate(lua_State* L) {
  const auto& served = get<llm::ServedModel>(L, 1);
  const auto written = served.write(of(L).session().cluster().here(), ids_at(L, 2),
                                    script::generate_options(options_at(L, 3)));
  return push_future(L, written.then([](const Ids& ids) { return Codec<Ids>::to(ids); }),
                     "generate on " + served.server.str());
}
int served_model_report(lua_State* L) {
  const llm::ServerReport r = get<llm::ServedModel>(L, 1).report();
  push(L, Value(ValueMap{{"texts", r.texts},
                         {"waiting", r.waiting},
                         {"pages", r.pages},
                         {"free_pages", r.free_pages},
                         {"steps", r.steps},
                         {"tokens", r.tokens}}));
  return 1;
}

int llm_index(lua_State* L) {
  std::vector<Entry> known;
  for (const char* name : {"stages", "save", "load", "tokenizer", "tokens", "write_tokens", "serve"})
    known.push_back({name, "", {}});
  find_entry(known, text_at(L, 2), "[llm] unknown function");
  return 0;
}

}  // namespace

void open_language_models(lua_State* L) {
  make_type<DecoderObject>(L, {{"generate", guarded<model_generate>},
                               {"parameters", guarded<model_parameters>},
                               {"state_dict", guarded<model_state>},
                               {"save", guarded<model_save>},
                               {"merge", guarded<model_merge>},
                               {"__call", guarded<model_call>},
                               {"__tostring", guarded<model_to_string>}});
  make_type<llm::Tokenizer>(L,
                            {{"encode", guarded<tokenizer_encode>}, {"decode", guarded<tokenizer_decode>}});
  make_type<datasets::TokenFile>(L, {{"windows", guarded<token_windows>}, {"__len", guarded<token_count>}});
  make_type<llm::ServedModel>(
      L, {{"generate", guarded<served_generate>}, {"report", guarded<served_model_report>}});
  open_table(L, "llm", guarded<llm_index>,
             {{"stages", guarded<make_stages>},
              {"save", guarded<save_stages>},
              {"load", guarded<load_model>},
              {"tokenizer", guarded<open_tokenizer>},
              {"tokens", guarded<open_token_file>},
              {"write_tokens", guarded<write_tokens>},
              {"serve", guarded<serve_model>}});
}

}  // namespace troupe::repl
