// plot, graph and trace in Lua: pictures as files, and lines of braille on a terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "autograd/graph_dot.h"
#include "tools/draw/chart.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "tools/repl/terminal/braille.h"
#include "troupe/profile.h"

namespace troupe::repl {
namespace {

std::vector<double> numbers_of(const Value& v) {
  if (const auto* t = v.get_if<Tensor>()) return t->detach().to_vector<double>();
  const auto* list = v.get_if<ValueList>();
  if (!list) throw_invalid("plot: a line is a list of numbers or a tensor, got " + v.describe());
  std::vector<double> out;
  for (const Value& element : *list) {
    if (const auto* d = element.get_if<double>())
      out.push_back(*d);
    else if (const auto* i = element.get_if<int64_t>())
      out.push_back(static_cast<double>(*i));
    else if (const auto* t = element.get_if<Tensor>())
      out.push_back(t->item());
    else
      throw_invalid("plot: expected numbers, got " + element.describe());
  }
  return out;
}

std::string text_option(ValueMap& options, const char* name, std::string standard) {
  auto node = options.extract(name);
  if (node.empty()) return standard;
  if (auto* text = node.mapped().get_if<std::string>()) return std::move(*text);
  throw_invalid(fmt::format("plot: {} is a string, got {}", name, node.mapped().describe()));
}

// plot{loss = {...}, accuracy = {...}, x = {...}, title = "...", file = "loss.svg"}; plot({1, 2, 3})
int plot(lua_State* L) {
  Value given = value_at(L, 1);
  tools::Chart chart;
  std::string file;
  std::vector<double> x;
  if (auto* options = given.get_if<ValueMap>()) {
    chart.title = text_option(*options, "title", "");
    chart.x_label = text_option(*options, "x_label", "step");
    chart.left_label = text_option(*options, "y_label", "");
    file = text_option(*options, "file", "plot.svg");
    if (auto node = options->extract("x"); !node.empty()) x = numbers_of(node.mapped());
    double smooth = 0;
    if (auto node = options->extract("smooth"); !node.empty()) smooth = Codec<double>::from(node.mapped());
    for (const auto& [name, v] : *options) chart.series.push_back({name, {}, numbers_of(v), false, smooth});
  } else {
    file = "plot.svg";
    chart.x_label = "step";
    chart.series.push_back({"value", {}, numbers_of(given)});
  }
  if (chart.series.empty() || (chart.series[0].y.empty() && chart.series.size() == 1))
    throw_invalid("plot: no line was given: plot{loss = losses, file = \"loss.svg\"}");
  for (auto& s : chart.series) {
    s.x = x;
    if (s.x.empty())
      for (size_t i = 0; i < s.y.size(); ++i) s.x.push_back(static_cast<double>(i));
    if (s.x.size() != s.y.size())
      throw_invalid(fmt::format("plot: {} has {} values, and x has {}", s.name, s.y.size(), s.x.size()));
  }
  tools::write_chart(file, chart);
  if (isatty(STDOUT_FILENO)) {
    const std::string picture = braille(chart, 72, 12);
    std::fwrite(picture.data(), 1, picture.size(), stdout);
  }
  const std::string line = "wrote " + file + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  return 0;
}

// graph(loss[, "loss.svg"])
int graph(lua_State* L) {
  const std::string path = luaL_optstring(L, 2, "graph.dot");
  autograd::save_graph(tensor_at(L, 1), path);
  push(L, std::string_view("wrote " + path));
  return 1;
}

// trace(f[, "trace.json"]): what all workers did while f ran.
int trace(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  const std::string path = luaL_optstring(L, 2, "trace.json");
  Profile profile(of(L).session().cluster());
  lua_pushvalue(L, 1);
  lua_call(L, 0, 0);
  const Trace seen = profile.end();
  seen.save(path);
  push(L, std::string_view(fmt::format("{} events; wrote {} (chrome://tracing or ui.perfetto.dev shows it)",
                                       seen.events().size(), path)));
  return 1;
}

}  // namespace

void open_drawing(lua_State* L) {
  lua_register(L, "plot", guarded<plot>);
  lua_register(L, "graph", guarded<graph>);
  lua_register(L, "trace", guarded<trace>);
}

}  // namespace troupe::repl
