#include "parallel/layout/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/visible.h"
#include "core/entry/entry.h"
#include "data/formats/file.h"
#include "data/formats/json.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "rref/ref_table.h"

namespace troupe::parallel {
namespace {

constexpr int kMostWhole = 1 << 20;  // of sizes, micro-batches, chunks, layers
const std::vector<std::string> kKeys{"checkpoint",    "chunks",    "cuts",     "gather", "mesh",
                                     "micro_batches", "most_live", "policies", "reduce", "rows",
                                     "schedule",      "shard",     "slices",   "stages", "workers"};
const std::vector<std::string> kDims{"dp", "pp", "ep", "cp", "tp"};

// Meshes have these only where a file names them: models without experts and long sequences know nothing of
// them.
bool is_optional(const std::string& dim) { return dim == "ep" || dim == "cp"; }

constexpr size_t kLongest = 80;  // bytes of a name or a value, in an error

std::string quoted(const std::string& name) { return in_quotes(name, kLongest); }
std::string quoted(const std::string& name, const std::string& within) {
  return quoted(name) + " of " + quoted(within);
}
template <class Names>
std::string names_in(const Names& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + quoted(name);
  return all;
}

// Behind a name that is none of these.
std::string hint(const std::string& got, const std::vector<std::string>& known) {
  const std::string near = nearest(got, known);
  return (near.empty() ? "." : "; did you mean " + quoted(near) + "?") + " There are: " + names_in(known);
}

// What a value is, in an error: as the file has it.
std::string shown(const Value& value) {
  std::string text = datasets::json_text(value);
  if (text.size() <= kLongest) return text;
  const std::string cut = in_quotes(text, kLongest);  // at a whole character
  return cut.substr(1, cut.size() - 2);
}

bool is_whole(const Value& value) {
  const auto* n = value.get_if<int64_t>();
  return n && *n >= 1 && *n <= kMostWhole;
}
std::string element_of(const std::string& key, size_t index) {
  return fmt::format("element {} of {}", index + 1, quoted(key));
}
const std::string kWhole = fmt::format("a whole number from 1 to {}", kMostWhole);

}  // namespace

Layout::Layout(std::string name, ValueMap keys) : name_(std::move(name)), keys_(std::move(keys)) {
  for (const auto& [key, value] : keys_)
    if (std::ranges::find(kKeys, key) == kKeys.end())
      fail(fmt::format("there is no key {}{}", quoted(key), hint(key, kKeys)));
}

void Layout::fail(const std::string& what) const { throw_invalid("[layout] " + name_ + ": " + what); }

void Layout::wrong(const std::string& what, const Value& value, const std::string& expected) const {
  fail(fmt::format("{} is {}: expected {}", what, shown(value), expected));
}

// What others find wrong, with the file and what is before their text.
template <class F>
auto Layout::checked(const std::string& key, const F& f) const {
  try {
    return f();
  } catch (const Error& e) {
    fail((key.empty() ? "" : key + ": ") + e.message());
  }
}

const Value* Layout::read(const std::string& key) {
  read_.insert(key);
  const auto at = keys_.find(key);
  return at == keys_.end() ? nullptr : &at->second;
}

int Layout::whole(const std::string& key, int otherwise) {
  const Value* value = read(key);
  if (!value) return otherwise;
  if (!is_whole(*value)) wrong(quoted(key), *value, kWhole);
  return static_cast<int>(*value->get_if<int64_t>());
}

std::string Layout::text(const std::string& key, std::string otherwise) {
  const Value* value = read(key);
  if (!value) return otherwise;
  const auto* text = value->get_if<std::string>();
  if (!text) wrong(quoted(key), *value, "text");
  return *text;
}

std::vector<int> Layout::wholes(const std::string& key, std::vector<int> otherwise) {
  const Value* value = read(key);
  if (!value) return otherwise;
  const auto* list = value->get_if<ValueList>();
  if (!list) wrong(quoted(key), *value, "a list, each " + kWhole);
  std::vector<int> out;
  for (const Value& v : *list) {
    if (!is_whole(v)) wrong(element_of(key, out.size()), v, kWhole);
    out.push_back(static_cast<int>(*v.get_if<int64_t>()));
  }
  return out;
}

std::vector<std::string> Layout::texts(const std::string& key, const Value& value) const {
  const auto* list = value.get_if<ValueList>();
  if (!list) wrong(quoted(key), value, "a list of texts");
  std::vector<std::string> out;
  for (const Value& v : *list) {
    const auto* text = v.get_if<std::string>();
    if (!text) wrong(element_of(key, out.size()), v, "text");
    out.push_back(*text);
  }
  return out;
}

std::vector<MeshDim> Layout::dims(const std::set<std::string>& always) {
  auto dims = members(always);
  if (const auto pp = std::ranges::find(dims, "pp", &MeshDim::name); pp != dims.end()) {
    const bool was_read = read_.contains("chunks");  // the options read it
    pp->turns = static_cast<size_t>(whole("chunks", 1));
    if (!was_read) read_.erase("chunks");
    pp->size *= pp->turns;
    const auto schedule = keys_.find("schedule");  // the options read it
    const auto* name = schedule == keys_.end() ? nullptr : schedule->second.get_if<std::string>();
    pp->back = name && goes_back(*name);
  }
  return dims;
}

std::vector<MeshDim> Layout::members(const std::set<std::string>& always) {
  const Value* value = read("mesh");
  if (!value) fail("\"mesh\" is missing: the sizes of its dimensions, such as {\"dp\": 2, \"tp\": 2}");
  if (const auto* text = value->get_if<std::string>()) {
    auto dims = checked(quoted("mesh"), [&] { return mesh_dims(*text, kDims); });
    for (const MeshDim& d : dims)
      if (d.size > kMostWhole) wrong(quoted("mesh"), *value, "sizes that are each " + kWhole);
    std::erase_if(dims, [&](const MeshDim& d) {
      return is_optional(d.name) && !always.contains(d.name) && text->find(d.name + "=") == std::string::npos;
    });
    return dims;
  }
  const auto* sizes = value->get_if<ValueMap>();
  if (!sizes) wrong(quoted("mesh"), *value, "sizes of dimensions, such as {\"dp\": 2, \"tp\": 2}");
  std::vector<MeshDim> dims;
  for (const std::string& name : kDims) dims.push_back({name, 1});
  for (const auto& [name, size] : *sizes) {
    const auto at = std::ranges::find(dims, name, &MeshDim::name);
    if (at == dims.end())
      fail(fmt::format("\"mesh\" has no dimension {}{}", quoted(name), hint(name, kDims)));
    if (!is_whole(size)) wrong(quoted(name, "mesh"), size, kWhole);
    at->size = static_cast<size_t>(*size.get_if<int64_t>());
  }
  std::erase_if(dims, [&](const MeshDim& d) {
    return is_optional(d.name) && !always.contains(d.name) && !sizes->contains(d.name);
  });
  return dims;
}

std::vector<std::string> Layout::workers(const std::vector<MeshDim>& dims) {
  const Value* value = read("workers");
  if (!value) return {};
  auto names = texts("workers", *value);
  const MeshPoints points = MeshPoints(dims).members();
  if (points.size() != names.size())
    fail(fmt::format("\"mesh\" has {} points, {}, and \"workers\" names {}: give as many", points.size(),
                     points.str(), names.size()));
  return names;
}

Mesh Layout::mesh(const Here& here, const std::set<std::string>& always) {
  return mesh_of(here, dims(always));
}

Mesh Layout::mesh_of(const Here& here, const std::vector<MeshDim>& dims) {
  const std::vector<std::string> names = workers(dims);
  const MeshPoints points = MeshPoints(dims).members();
  const size_t there = here.workers().size();
  if (names.empty() && points.size() != there)
    fail(fmt::format(
        "\"mesh\" has {} points, {}, and the cluster {} workers: change the sizes, or name {} of them "
        "in \"workers\"",
        points.size(), points.str(), there, points.size()));
  const std::vector<Place> places(names.begin(), names.end());
  return checked(quoted("workers"), [&] { return Mesh(here.table().worker(), dims, places); });
}

void Layout::check_dims(const std::vector<std::string>& known) {
  for (const MeshDim& d : members({}))
    if (d.size > 1 && std::ranges::find(known, d.name) == known.end())
      fail(fmt::format("\"mesh\" has {} {}, and this program cuts its model along {} alone", d.name, d.size,
                       names_in(known)));
}

Group Layout::replicas_on(const Here& here) {
  check_dims({"dp"});
  return mesh_of(here, members({})).all();
}

void Layout::read_sharding(Shard& shard, Per& gather, Per& reduce) {
  if (const std::string named = text("shard", ""); keys_.contains("shard"))
    shard = checked(quoted("shard"), [&] { return shard_named(named); });
  for (const auto& [key, per] : {std::pair("gather", &gather), std::pair("reduce", &reduce)}) {
    const Value* value = read(key);
    if (!value) continue;
    const auto* often = value->get_if<std::string>();
    if (!often || (*often != "use" && *often != "step")) wrong(quoted(key), *value, "use or step");
    if (shard != Shard::all)
      fail(
          fmt::format("\"{}\" is of the parts that \"shard\": \"all\" has; here it is {}", key, word(shard)));
    *per = *often == "use" ? Per::use : Per::step;
  }
}

void Layout::read_schedule(PipelineOptions& options) {
  const Value* value = read("schedule");
  if (value && value->get_if<ValueList>()) {
    options.schedule.clear();
    for (const std::string& row : texts("schedule", *value)) options.schedule += row + "\n";
  } else {
    options.schedule = text("schedule", options.schedule);
  }
  options.micro_batches = whole("micro_batches", options.micro_batches);
  options.chunks = whole("chunks", options.chunks);
  options.slices = whole("slices", options.slices);
  if (const Value* when = read("checkpoint")) {
    const std::string what = text("checkpoint", "");
    if (what == "never")
      options.checkpoint = Checkpoint::never;
    else if (what == "except_last")
      options.checkpoint = Checkpoint::except_last;
    else if (what == "always")
      options.checkpoint = Checkpoint::always;
    else
      wrong(quoted("checkpoint"), *when, "never, except_last or always");
  }
}

void Layout::check_schedule(size_t stages, const PipelineOptions& options) const {
  const int count = static_cast<int>(stages);
  if (count % options.chunks != 0)
    fail(fmt::format("{} stages cannot be {} \"chunks\" for each worker", count, options.chunks));
  if (options.schedule == "auto") return;
  checked("", [&] {
    return make_policy(options.schedule, count / options.chunks, options.micro_batches, options.chunks);
  });
}

std::vector<int64_t> Layout::rows(size_t replicas, std::vector<int64_t> otherwise) {
  if (!keys_.contains("rows")) return read("rows"), otherwise;
  const std::vector<int> rows = wholes("rows", {});
  if (rows.size() != replicas)
    fail(fmt::format("\"rows\" has {} numbers for {} replicas: give one for each", rows.size(), replicas));
  return {rows.begin(), rows.end()};
}

PipelineOptions Layout::pipelines(const Mesh& mesh, PipelineOptions otherwise) {
  return pipelines(mesh.dims(), std::move(otherwise));
}

PipelineOptions Layout::pipelines(const std::vector<MeshDim>& dims, PipelineOptions otherwise) {
  read_schedule(otherwise);
  otherwise.rows = rows(size_along(dims, "dp"), otherwise.rows);
  read_sharding(otherwise.shard, otherwise.gather, otherwise.reduce);
  checked("", [&] { return Pipelines::check(MeshPoints(dims), otherwise); });
  check_schedule(size_along(dims, "pp"), otherwise);
  return otherwise;
}

DataParallelOptions Layout::replicas(DataParallelOptions otherwise) {
  read_sharding(otherwise.shard, otherwise.gather, otherwise.reduce);
  return otherwise;
}

std::vector<std::string> Layout::stages(std::vector<std::string> otherwise) {
  const Value* value = read("stages");
  if (!value) return otherwise;
  auto places = texts("stages", *value);
  if (places.empty()) wrong(quoted("stages"), *value, "the worker of each stage");
  return places;
}

std::vector<size_t> Layout::cuts(size_t stages, std::vector<size_t> otherwise) {
  if (!keys_.contains("cuts")) return read("cuts"), otherwise;
  const std::vector<int> cuts = wholes("cuts", {});
  if (cuts.size() + 1 != stages)
    fail(fmt::format("{} \"cuts\" make {} stages, and there are {}", cuts.size(), cuts.size() + 1, stages));
  return {cuts.begin(), cuts.end()};
}

PipelineOptions Layout::pipeline(size_t stages, PipelineOptions otherwise) {
  read_schedule(otherwise);
  otherwise.most_live = wholes("most_live", otherwise.most_live);
  check_schedule(stages, otherwise);
  return otherwise;
}

ServerPolicy Layout::policy(const std::string& of, ServerPolicy otherwise) {
  served_.insert(of);
  const Value* all = read("policies");
  if (!all) return otherwise;
  const auto* policies = all->get_if<ValueMap>();
  if (!policies) wrong(quoted("policies"), *all, "a policy for each name");
  const auto at = policies->find(of);
  if (at == policies->end()) return otherwise;
  const auto* text = at->second.get_if<std::string>();
  if (!text) wrong(quoted(of, "policies"), at->second, "text");
  return checked(quoted(of, "policies"), [&] { return ServerPolicy::parse(*text); });
}

void Layout::check_all_read() const {
  for (const auto& [key, value] : keys_)
    if (!read_.contains(key))
      fail(fmt::format("nothing in this program reads {}; it reads: {}", quoted(key), names_in(read_)));
  const auto at = keys_.find("policies");
  const auto* policies = at == keys_.end() ? nullptr : at->second.get_if<ValueMap>();
  if (!policies) return;
  for (const auto& [name, policy] : *policies)
    if (!served_.contains(name))
      fail(fmt::format("\"policies\" names {}, which this program does not serve; it serves: {}",
                       quoted(name), names_in(served_)));
}

Layout parse_layout(std::string_view json, const std::string& name) {
  const std::string what = "[layout] " + name + ": ";
  Value root = datasets::read_json(json, what);
  auto* keys = root.get_if<ValueMap>();
  if (!keys) throw_invalid(what + "expected an object, got " + shown(root));
  const auto* format = keys->contains("format") ? keys->at("format").get_if<std::string>() : nullptr;
  if (format && format->starts_with("troupe model profile"))
    throw_invalid(what + "this is a profile of a model, of which `troupe plan` makes a layout: troupe plan " +
                  name + " --layout plan.json");
  return {name, std::move(*keys)};
}

Layout read_layout(const std::string& path) {
  constexpr size_t kMostBytes = 1 << 20;
  const auto file = datasets::MappedFile::open(path, "layout", "a layout (JSON)");
  if (file->size() > kMostBytes)
    throw_invalid(fmt::format("[layout] {}: {} bytes, expected at most {}", path, file->size(), kMostBytes));
  return parse_layout(file->text(), path);
}

}  // namespace troupe::parallel
