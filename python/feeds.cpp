// Sources larger than memory and feeds of their batches, in Python.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>

#include "core/base/error.h"
#include "data/streams/array_rows.h"
#include "data/streams/described.h"
#include "data/streams/feed.h"
#include "data/streams/source_catalog.h"
#include "parallel/feed/feed_readers.h"
#include "python/cluster.h"

namespace troupe::python {
namespace {

using namespace nb::literals;
using datasets::Sample;
using Bucket = std::optional<std::pair<std::string, std::vector<int64_t>>>;  // a field, and boundaries

struct SourceObject {
  datasets::SourcePtr source;
  ValueMap described = {};  // as described_source() takes it; empty: it cannot be
};
SourceObject described(ValueMap description) {
  return {datasets::described_source(description), std::move(description)};
}

// Its threads may be in a function of Python when it goes.
struct FeedObject {
  ClusterPtr cluster;  // of its readers
  std::unique_ptr<datasets::Feed> made;
  ~FeedObject() { end(); }
  void end() {
    if (!made) return;
    const nb::gil_scoped_release free;
    made.reset();
  }
  datasets::Feed& feed() const {
    if (!made) throw_invalid("[stream] the feed has ended, with the interpreter");
    return *made;
  }
};

// A function of Python that threads call, and that goes with the interpreter's lock.
std::shared_ptr<nb::object> shared(nb::object f) {
  return {new nb::object(std::move(f)), [](nb::object* o) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire lock;
            delete o;
          }};
}

// An exception of Python as an error: `invalid` for ValueError and KeyError, which say that a sample is
// wrong.
template <class F>
auto calling(const F& f) {
  const nb::gil_scoped_acquire lock;
  try {
    return f();
  } catch (nb::python_error& e) {
    const bool wrong = e.matches(PyExc_ValueError) || e.matches(PyExc_LookupError);
    throw Error(wrong ? ErrorKind::invalid : ErrorKind::failed,
                std::string("[stream] a function of the feed: ") + e.what());
  }
}

// A dict of fields, or the sample as it was for True; nothing for None and False.
std::optional<Sample> sample_of(nb::handle given, const Sample& was) {
  if (given.is_none() || given.is(Py_False)) return {};
  if (given.is(Py_True)) return was;
  Value value = conversion_of(given);
  if (auto* fields = value.get_if<ValueMap>()) return std::move(*fields);
  throw_invalid("[stream] a function of a feed gave " + value.describe() +
                ", expected a dict of fields, True or False, or None");
}

datasets::Pipeline::Step step_of(nb::object f) {
  return [function = shared(std::move(f))](Sample s, Generator&) {
    return calling([&] { return sample_of((*function)(conversion_of(Value(s))), s); });
  };
}

// What is made the same on readers.
datasets::Pipeline made_anywhere(ValueMap source, const std::map<std::string, int64_t>& numbers,
                                 std::optional<uint64_t> seed, std::optional<int64_t> take,
                                 const std::map<std::string, double>& pad,
                                 const std::optional<std::pair<std::string, int64_t>>& pack,
                                 const Bucket& bucket, bool drop_last, bool skip_broken) {
  ValueMap all{{"source", std::move(source)}, {"drop_last", drop_last}, {"skip_broken", skip_broken}};
  for (const char* name : {"batch", "pad_to", "repeat", "block", "together"}) all[name] = numbers.at(name);
  ValueMap padded;
  for (const auto& [field, with] : pad) padded[field] = with;
  all["pad"] = std::move(padded);
  if (seed) all["seed"] = static_cast<int64_t>(*seed);
  if (take) all["take"] = *take;
  if (pack) all["pack"] = ValueList{pack->first, pack->second};
  if (bucket)
    all["bucket"] = ValueList{bucket->first, ValueList(bucket->second.begin(), bucket->second.end())};
  return datasets::described_pipeline(all);
}

datasets::Pipeline made_here(const SourceObject& source, const std::vector<nb::object>& functions,
                             const std::map<std::string, int64_t>& numbers, std::optional<uint64_t> seed,
                             std::optional<int64_t> take, const std::map<std::string, double>& pad,
                             const std::optional<std::pair<std::string, int64_t>>& pack, const Bucket& bucket,
                             bool drop_last, bool skip_broken) {
  datasets::Pipeline pipeline(source.source);
  if (seed)
    pipeline.shuffle({.seed = *seed, .block = numbers.at("block"), .together = numbers.at("together")});
  for (const nb::object& f : functions) pipeline.step(step_of(f));
  if (pack) pipeline.pack(pack->first, pack->second);
  if (bucket) pipeline.bucket(bucket->first, bucket->second);
  if (take) pipeline.take(*take);
  return pipeline
      .batch(numbers.at("batch"), {.drop_last = drop_last, .pad = pad, .pad_to = numbers.at("pad_to")})
      .repeat(numbers.at("repeat"))
      .skip_broken(skip_broken);
}

std::unique_ptr<FeedObject> make_feed(const SourceObject& source, const std::vector<nb::object>& functions,
                                      const std::map<std::string, int64_t>& numbers,
                                      std::optional<uint64_t> seed, std::optional<int64_t> take,
                                      const std::map<std::string, double>& pad,
                                      std::optional<std::pair<std::string, int64_t>> pack, Bucket bucket,
                                      bool drop_last, bool skip_broken, const ClusterPtr& cluster,
                                      const std::vector<std::string>& readers, const std::string& device) {
  auto out = std::make_unique<FeedObject>();
  datasets::FeedOptions options{.ahead = {.threads = numbers.at("threads"), .ahead = numbers.at("ahead")},
                                .rank = numbers.at("rank"),
                                .ranks = numbers.at("ranks"),
                                .device = Device(device)};
  if (!readers.empty()) {
    if (!functions.empty() || source.described.empty())
      throw_invalid(
          "[stream] readers on other workers have neither functions of Python nor sources of its own: leave "
          "out steps, or readers");
    if (!cluster) throw_invalid("[stream] readers are workers of a cluster: Feed(..., cluster=cluster)");
    out->cluster = cluster;
    options.readers = datasets::readers(cluster->session().cluster(), readers);
  }
  datasets::Pipeline pipeline =
      readers.empty()
          ? made_here(source, functions, numbers, seed, take, pad, pack, bucket, drop_last, skip_broken)
          : made_anywhere(source.described, numbers, seed, take, pad, pack, bucket, drop_last, skip_broken);
  const nb::gil_scoped_release free;
  out->made = std::make_unique<datasets::Feed>(std::move(pipeline), std::move(options));
  return out;
}

nb::object next_batch(FeedObject& f) {
  std::optional<datasets::FedBatch> batch;
  {
    const nb::gil_scoped_release free;
    batch = f.feed().next();
  }
  if (!batch) throw nb::stop_iteration();
  return conversion_of(Value(std::move(batch->fields)));
}

void def_sources(nb::module_& m) {
  nb::class_<SourceObject>(m, "Source")
      .def("__len__", [](const SourceObject& s) { return s.source->size(); })
      .def("__getitem__", [](const SourceObject& s, int64_t number) {
        if (number < 0 || number >= s.source->size())
          throw nb::index_error(("the source has " + std::to_string(s.source->size()) + " samples; got " +
                                 std::to_string(number))
                                    .c_str());
        return conversion_of(Value(s.source->read(number)));
      });
  m.def("source", [](const std::string& name, nb::args args, nb::kwargs kwargs) {
    ValueMap description = datasets::description_of(name, values_of(args), values_of(kwargs));
    const nb::gil_scoped_release free;
    return described(std::move(description));
  });
  m.def("side_by_side", [](const std::vector<SourceObject>& sources) {
    std::vector<datasets::SourcePtr> all;
    ValueList described;
    bool can_be = true;
    for (const SourceObject& s : sources) {
      all.push_back(s.source);
      described.push_back(s.described);
      can_be = can_be && !s.described.empty();
    }
    SourceObject out{datasets::side_by_side(all)};
    if (can_be) out.described = {{"kind", std::string("side_by_side")}, {"sources", std::move(described)}};
    return out;
  });
  m.def("mixed_sources", [](const std::vector<std::pair<SourceObject, double>>& parts, int64_t size) {
    std::vector<datasets::Part> all;
    ValueList described;
    bool can_be = true;
    for (const auto& [source, weight] : parts) {
      all.push_back({source.source, weight});
      described.push_back(ValueList{source.described, weight});
      can_be = can_be && !source.described.empty();
    }
    SourceObject out{datasets::mixed(all, size)};
    if (can_be)
      out.described = {{"kind", std::string("mixed")}, {"parts", std::move(described)}, {"size", size}};
    return out;
  });
  m.def("source_of", [](const Tensor& x, const Tensor& y) {
    return described({{"kind", std::string("in_memory")}, {"x", x}, {"y", y}});
  });
}

}  // namespace

void open_feeds(nb::module_& m) {
  def_sources(m);
  nb::class_<FeedObject>(m, "Feed")
      .def("next", next_batch)
      .def("end", &FeedObject::end)
      .def("report",
           [](const FeedObject& f) {
             const auto& report = f.feed().report();
             return nb::make_tuple(report.rows, report.broken,
                                   std::chrono::duration<double>(report.waited).count(),
                                   report.rows_per_second());
           })
      .def("state_dict",
           [](const FeedObject& f) {
             ValueMap out;
             for (auto& [name, t] : f.feed().state()) out.emplace(name, t);
             return conversion_of(Value(std::move(out)));
           })
      .def("load_state_dict", [](FeedObject& f, nb::handle state) {
        const auto loaded = state_at(state, "load_state_dict");
        const nb::gil_scoped_release free;
        f.feed().load_state(loaded);
      });
  m.def("feed", make_feed, "source"_a, "functions"_a, "numbers"_a, "seed"_a.none(), "take"_a.none(), "pad"_a,
        "pack"_a.none(), "bucket"_a.none(), "drop_last"_a, "skip_broken"_a, "cluster"_a.none(), "readers"_a,
        "device"_a);
}

}  // namespace troupe::python
