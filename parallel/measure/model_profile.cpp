#include "parallel/measure/model_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "core/entry/entry.h"
#include "data/formats/file.h"
#include "data/formats/json.h"

namespace troupe::parallel {
namespace {

using internal::collective::Links;

const std::string kFormat = "troupe model profile 1";

// ---- The fields of each struct by name, once for both ways.
template <class F>
void fields(RowTime& t, const F& f) {
  f("fixed", t.fixed), f("per_row", t.per_row);
}
template <class F>
void fields(LayerCost& l, const F& f) {
  f("name", l.name), f("forward", l.forward), f("input", l.input), f("weight", l.weight),
      f("backward", l.backward), f("adding", l.adding);
  f("alone", l.alone), f("alone_few", l.alone_few);
  f("parameters", l.parameters), f("largest", l.largest), f("saved", l.saved), f("working", l.working),
      f("output", l.output);
  f("time_divided", l.time_divided), f("parameters_divided", l.parameters_divided);
  f("saved_divided", l.saved_divided), f("heads", l.heads), f("sums", l.sums);
  f("experts", l.experts), f("chosen", l.chosen), f("expert_parameters", l.expert_parameters);
}
template <class F>
void fields(WorkerCost& w, const F& f) {
  f("name", w.name), f("host", w.host), f("speed", w.speed), f("pace", w.pace), f("memory", w.memory),
      f("tensors", w.tensors);
}
template <class F>
void fields(LinkCost& l, const F& f) {
  f("latency", l.latency), f("rate", l.rate);
}
template <class F>
void fields(Links& l, const F& f) {
  f("near_round", l.near_round), f("near_rate", l.near_rate);
  f("far_round", l.far_round), f("far_rate", l.far_rate);
}
template <class F>
void fields(ModelProfile& p, const F& f) {
  f("batch", p.batch), f("cuts_layers", p.cuts_layers), f("cores", p.cores);
  f("workers", p.workers), f("process", p.process), f("host", p.host), f("hosts", p.hosts);
  f("sums", p.sums), f("optimizer", p.optimizer), f("state", p.state), f("layers", p.layers);
}

template <class T>
Value written(std::vector<T>& xs);
template <class T>
Value written(T& x) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return Value(x);
  } else {
    ValueMap out;
    fields(x, [&](const char* name, auto& field) { out[name] = written(field); });
    return out;
  }
}
template <class T>
Value written(std::vector<T>& xs) {
  ValueList out;
  for (T& x : xs) out.push_back(written(x));
  return out;
}

class Reader {
 public:
  explicit Reader(std::string what) : what_(std::move(what)) {}
  [[noreturn]] void fail(const std::string& text) const { throw_invalid(what_ + text); }

  void read(const Value& value, const std::string& at, double& out) const {
    if (const auto* whole = value.get_if<int64_t>())
      out = static_cast<double>(*whole);
    else if (const auto* number = value.get_if<double>())
      out = *number;
    else
      wrong(at, value, "a number");
    if (!std::isfinite(out) || out < 0) wrong(at, value, "a number from 0 on");
  }
  void read(const Value& value, const std::string& at, int64_t& out) const {
    const auto* whole = value.get_if<int64_t>();
    if (!whole || *whole < 0) wrong(at, value, "a whole number from 0 on");
    out = *whole;
  }
  void read(const Value& value, const std::string& at, bool& out) const {
    const auto* is = value.get_if<bool>();
    if (!is) wrong(at, value, "true or false");
    out = *is;
  }
  void read(const Value& value, const std::string& at, std::string& out) const {
    const auto* text = value.get_if<std::string>();
    if (!text) wrong(at, value, "text");
    out = *text;
  }
  template <class T>
  void read(const Value& value, const std::string& at, std::vector<T>& out) const {
    const auto* list = value.get_if<ValueList>();
    if (!list) wrong(at, value, "a list");
    for (const Value& v : *list) read(v, fmt::format("{}[{}]", at, out.size()), out.emplace_back());
  }
  template <class T>
    requires std::is_class_v<T>
  void read(const Value& value, const std::string& at, T& out) const {
    const auto* map = value.get_if<ValueMap>();
    if (!map) wrong(at, value, "an object");
    std::set<std::string> known;
    const std::string before = at.empty() ? "" : at + ".";
    fields(out, [&](const char* name, auto& field) {
      known.insert(name);
      const auto found = map->find(name);
      if (found == map->end()) fail(fmt::format("\"{}{}\" is missing", before, name));
      read(found->second, before + name, field);
    });
    for (const auto& [name, v] : *map)
      if (!known.contains(name) && !(at.empty() && name == "format"))
        fail(fmt::format("there is no key {}", in_quotes(before + name, 80)));
  }

 private:
  [[noreturn]] void wrong(const std::string& at, const Value& value, const std::string& expected) const {
    fail(fmt::format("\"{}\" is {}: expected {}", at, datasets::json_text(value), expected));
  }
  const std::string what_;
};

void check(const ModelProfile& p, const Reader& reader) {
  if (p.batch < 1) reader.fail("\"batch\" is 0: expected at least 1 row");
  if (p.layers.empty()) reader.fail("\"layers\" is empty: expected a layer at least");
  if (p.workers.empty()) reader.fail("\"workers\" is empty: expected a worker at least");
  if (p.cores < 1) reader.fail("\"cores\" is 0: expected at least 1");
  for (const LayerCost& l : p.layers) {
    constexpr double kMost = 1e13;  // bytes of a layer
    if (l.parameters > kMost || l.largest > l.parameters)
      reader.fail(
          fmt::format("layer {} has {} bytes of parameters, and {} in the largest: expected at most {}, and "
                      "no more in one than in all",
                      in_quotes(l.name, 80), l.parameters, l.largest, kMost));
    if (l.heads < 1)
      reader.fail("\"heads\" of layer " + in_quotes(l.name, 80) + " is 0: expected at least 1");
    if (l.experts > 0 && (l.chosen < 1 || l.chosen > l.experts))
      reader.fail(fmt::format("\"chosen\" of layer {} is {}: expected 1 to its {} experts",
                              in_quotes(l.name, 80), l.chosen, l.experts));
    if (l.expert_parameters > (l.experts ? l.parameters : 0))
      reader.fail(fmt::format("\"expert_parameters\" of layer {} are {:.0f} bytes of {:.0f}, with {} experts",
                              in_quotes(l.name, 80), l.expert_parameters, l.parameters, l.experts));
    for (const auto& [name, part] : {std::pair("alone", l.alone), {"alone_few", l.alone_few}})
      if (part <= 0 || part > 1)
        reader.fail(fmt::format("\"{}\" of layer {} is {}: expected more than 0, and at most 1", name,
                                in_quotes(l.name, 80), part));
    for (const double part : {l.time_divided, l.parameters_divided, l.saved_divided})
      if (part > 1)
        reader.fail(fmt::format("the divided part of layer {} is {}: expected at most 1",
                                in_quotes(l.name, 80), part));
  }
  std::set<std::string> names;
  for (const WorkerCost& w : p.workers) {
    if (!names.insert(w.name).second) reader.fail("worker " + in_quotes(w.name, 80) + " is there twice");
    if (w.speed <= 0) reader.fail("\"speed\" of worker " + in_quotes(w.name, 80) + " is 0: expected more");
  }
}

void least(RowTime& a, const RowTime& b, double rows) {
  if (b.of(rows) < a.of(rows)) a = b;
}
void least(LinkCost& a, const LinkCost& b) {
  if (b.rate <= 0) return;
  a = a.rate > 0 ? LinkCost{std::min(a.latency, b.latency), std::max(a.rate, b.rate)} : b;
}

}  // namespace

double ModelProfile::parameters() const {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const LayerCost& l) { return sum + l.parameters; });
}

std::string ModelProfile::json() const {
  ModelProfile copy = *this;
  Value whole = written(copy);
  ValueMap& all = *whole.get_if<ValueMap>();
  all["format"] = kFormat;
  return datasets::json_lines(whole);
}

ModelProfile parse_profile(std::string_view json, const std::string& name) {
  const Reader reader("[plan] " + name + ": ");
  const Value root = datasets::read_json(json, "[plan] " + name + ": ");
  const auto* map = root.get_if<ValueMap>();
  const auto at = map ? map->find("format") : ValueMap::const_iterator();
  const auto* format = map && at != map->end() ? at->second.get_if<std::string>() : nullptr;
  if (!format || *format != kFormat)
    reader.fail("this is no profile of a model: expected an object with \"format\": \"" + kFormat +
                "\", as programs write with --measure FILE");
  ModelProfile profile;
  reader.read(root, "", profile);
  check(profile, reader);
  return profile;
}

ModelProfile read_profile(const std::string& path) {
  constexpr size_t kMostBytes = 64 << 20;
  const auto file = datasets::MappedFile::open(path, "plan", "a profile of a model (JSON)");
  if (file->size() > kMostBytes)
    throw_invalid(fmt::format("[plan] {}: {} bytes, expected at most {}", path, file->size(), kMostBytes));
  return parse_profile(file->text(), path);
}

void write_profile(const ModelProfile& profile, const std::string& path) {
  datasets::write_file(path, profile.json(), "plan");
}

ModelProfile merge(const std::vector<ModelProfile>& profiles) {
  if (profiles.empty()) throw_invalid("[plan] there is no profile to merge");
  ModelProfile all = profiles[0];
  for (size_t k = 1; k < profiles.size(); ++k) {
    const ModelProfile& one = profiles[k];
    const bool same = std::ranges::equal(all.layers, one.layers, [](const LayerCost& a, const LayerCost& b) {
      return a.name == b.name && a.parameters == b.parameters && a.output == b.output;
    });
    if (!same)
      throw_invalid(
          fmt::format("[plan] profile {} is of another model than the first: {} layers of {:.0f} "
                      "bytes of parameters, expected {} of {:.0f}",
                      k + 1, one.layers.size(), one.parameters(), all.layers.size(), all.parameters()));
    const auto rows = static_cast<double>(all.batch);
    for (size_t i = 0; i < all.layers.size(); ++i) {
      LayerCost& a = all.layers[i];
      const LayerCost& b = one.layers[i];
      least(a.forward, b.forward, rows), least(a.input, b.input, rows), least(a.weight, b.weight, rows);
      least(a.backward, b.backward, rows);
      a.adding = std::min(a.adding, b.adding);
      a.saved = std::max(a.saved, b.saved), a.alone = std::max(a.alone, b.alone);
      a.alone_few = std::max(a.alone_few, b.alone_few);
    }
    for (const WorkerCost& w : one.workers) {
      const auto known = std::ranges::find(all.workers, w.name, &WorkerCost::name);
      if (known == all.workers.end())
        all.workers.push_back(w);
      else
        known->speed = (known->speed + w.speed) / 2, known->pace = std::min(known->pace, w.pace),
        known->memory = std::max(known->memory, w.memory),
        known->tensors = std::max(known->tensors, w.tensors);
    }
    least(all.process, one.process), least(all.host, one.host), least(all.hosts, one.hosts);
    if (all.sums == Links() || all.sums.far_rate <= 0) all.sums = one.sums == Links() ? all.sums : one.sums;
    all.cores = std::min(all.cores, one.cores);
    all.optimizer = std::min(all.optimizer, one.optimizer);
  }
  return all;
}

}  // namespace troupe::parallel
