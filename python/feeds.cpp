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
#include "data/streams/feed.h"
#include "python/conversion.h"
#include "script/feeds.h"

namespace troupe::python {
namespace {

using namespace nb::literals;
using datasets::Sample;

struct SourceObject {
  datasets::SourcePtr source;
};

// Its threads may be in a function of Python when it goes.
struct FeedObject {
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

std::unique_ptr<FeedObject> make_feed(const SourceObject& source, const std::vector<nb::object>& functions,
                                      const std::map<std::string, int64_t>& numbers,
                                      std::optional<uint64_t> seed, std::optional<int64_t> take,
                                      const std::map<std::string, double>& pad,
                                      std::optional<std::pair<std::string, int64_t>> pack, bool drop_last,
                                      bool skip_broken) {
  datasets::Pipeline pipeline(source.source);
  if (seed)
    pipeline.shuffle({.seed = *seed, .block = numbers.at("block"), .together = numbers.at("together")});
  for (const nb::object& f : functions) pipeline.step(step_of(f));
  if (pack) pipeline.pack(pack->first, pack->second);
  if (take) pipeline.take(*take);
  pipeline.batch(numbers.at("batch"), {.drop_last = drop_last, .pad = pad, .pad_to = numbers.at("pad_to")})
      .repeat(numbers.at("repeat"))
      .skip_broken(skip_broken);
  auto out = std::make_unique<FeedObject>();
  const nb::gil_scoped_release free;
  out->made = std::make_unique<datasets::Feed>(
      pipeline,
      datasets::FeedOptions{.ahead = {.threads = numbers.at("threads"), .ahead = numbers.at("ahead")},
                            .rank = numbers.at("rank"),
                            .ranks = numbers.at("ranks")});
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

}  // namespace

void open_feeds(nb::module_& m) {
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
    ValueList positional = values_of(args);
    ValueMap named = values_of(kwargs);
    const nb::gil_scoped_release free;
    return SourceObject{script::source_of(name, std::move(positional), std::move(named))};
  });
  m.def("side_by_side", [](const std::vector<SourceObject>& sources) {
    std::vector<datasets::SourcePtr> all;
    for (const SourceObject& s : sources) all.push_back(s.source);
    return SourceObject{datasets::side_by_side(all)};
  });
  m.def("mixed_sources", [](const std::vector<std::pair<SourceObject, double>>& parts, int64_t size) {
    std::vector<datasets::Part> all;
    for (const auto& [source, weight] : parts) all.push_back({source.source, weight});
    return SourceObject{datasets::mixed(all, size)};
  });
  m.def("source_of",
        [](const Tensor& x, const Tensor& y) { return SourceObject{datasets::in_memory({x, y})}; });
  nb::class_<FeedObject>(m, "Feed")
      .def("next", next_batch)
      .def("end", &FeedObject::end)
      .def("report",
           [](const FeedObject& f) {
             const auto& report = f.feed().report();
             return nb::make_tuple(report.rows, report.broken,
                                   std::chrono::duration<double>(report.waited).count());
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
        "pack"_a.none(), "drop_last"_a, "skip_broken"_a);
}

}  // namespace troupe::python
