#include "data/streams/described.h"

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "data/streams/array_rows.h"
#include "data/streams/recipe.h"
#include "data/streams/source_catalog.h"

namespace troupe::datasets {
namespace {

template <class T>
T at(const ValueMap& description, const char* name) {
  const auto found = description.find(name);
  if (found == description.end())
    throw_invalid(std::string("[stream] the description of a pipeline has no \"") + name + "\"");
  try {
    return Codec<T>::from(found->second);
  } catch (const Error& e) {
    throw_invalid(std::string("[stream] \"") + name + "\" of a description: " + e.message());
  }
}

template <class T>
T at(const ValueMap& description, const char* name, T standard) {
  return description.contains(name) ? at<T>(description, name) : standard;
}

Pipeline made_of(const ValueMap& description) {
  Pipeline out(described_source(at<ValueMap>(description, "source")));
  if (description.contains("seed"))
    out.shuffle({.seed = static_cast<uint64_t>(at<int64_t>(description, "seed")),
                 .block = at<int64_t>(description, "block"),
                 .together = at<int64_t>(description, "together")});
  if (description.contains("pack")) {
    const auto [field, length] = at<std::pair<std::string, int64_t>>(description, "pack");
    out.pack(field, length);
  }
  if (description.contains("bucket")) {
    const auto [field, boundaries] = at<std::pair<std::string, std::vector<int64_t>>>(description, "bucket");
    out.bucket(field, boundaries);
  }
  if (description.contains("take")) out.take(at<int64_t>(description, "take"));
  return out
      .batch(at<int64_t>(description, "batch"), {.drop_last = at<bool>(description, "drop_last"),
                                                 .pad = at<std::map<std::string, double>>(description, "pad"),
                                                 .pad_to = at<int64_t>(description, "pad_to")})
      .repeat(at<int64_t>(description, "repeat"))
      .skip_broken(at<bool>(description, "skip_broken"));
}

}  // namespace

SourcePtr described_source(const ValueMap& source) {
  const auto kind = at<std::string>(source, "kind");
  if (const auto* files = find_source(kind)) {
    ValueMap named = source;
    named.erase("kind");
    return (*files)({}, std::move(named));
  }
  if (kind == "in_memory") return in_memory({at<Tensor>(source, "x"), at<Tensor>(source, "y")});
  if (kind == "side_by_side") {
    std::vector<SourcePtr> all;
    for (const auto& each : at<std::vector<ValueMap>>(source, "sources"))
      all.push_back(described_source(each));
    return side_by_side(all);
  }
  if (kind != "mixed") {
    std::string known;
    for (const auto& s : sources()) known += s.name + ", ";
    throw_invalid("[stream] a source is described as \"" + kind + "\", expected " + known +
                  "in_memory, side_by_side or mixed");
  }
  std::vector<Part> parts;
  for (const auto& [part, weight] : at<std::vector<std::pair<ValueMap, double>>>(source, "parts"))
    parts.push_back({described_source(part), weight});
  return mixed(parts, at<int64_t>(source, "size", 0));
}

Pipeline described_pipeline(const ValueMap& description) { return recipe<made_of>(description); }

}  // namespace troupe::datasets
