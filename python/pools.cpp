// Pools of actors in Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "core/base/error.h"
#include "python/cluster.h"
#include "script/pools.h"

namespace troupe::python {
namespace {

using namespace nb::literals;

struct PoolObject {
  ClusterPtr cluster;
  std::shared_ptr<script::NamedPool> pool;
  script::NamedPool& open() const {
    (void)cluster->session();  // its pools have ended with it
    return *pool;
  }
};

PoolObject make_pool(const ClusterPtr& c, const std::string& type, nb::handle args, nb::handle named,
                     nb::handle options) {
  Value a = conversion_of(args), n = conversion_of(named), o = conversion_of(options);
  const nb::gil_scoped_release free;
  auto pool =
      std::make_shared<script::NamedPool>(c->session(), type, std::move(*a.get_if<ValueList>()),
                                          std::move(*n.get_if<ValueMap>()), std::move(*o.get_if<ValueMap>()));
  c->at_end.push_back([weak = std::weak_ptr(pool)] {
    if (const auto open = weak.lock()) open->core().end();
  });
  return {c, std::move(pool)};
}

nb::object call(const PoolObject& p, const std::string& method, std::optional<int64_t> member, nb::args args,
                nb::kwargs kwargs) {
  script::NamedPool& pool = p.open();
  const auto size = static_cast<int64_t>(pool.core().size());
  if (member && (*member < 0 || *member >= size))
    throw nb::index_error(
        ("the pool has " + std::to_string(size) + " members, 0 and on; got " + std::to_string(*member))
            .c_str());
  ValueList positional = values_of(args);
  ValueMap named = values_of(kwargs);
  Future<Value> future;
  {
    const nb::gil_scoped_release free;
    future = pool.call(method, std::move(positional), std::move(named),
                       member ? std::optional(static_cast<size_t>(*member)) : std::nullopt);
  }
  return future_object(p.cluster, future, pool.core().type() + "::" + method + " of a pool");
}

// A function of Python for each member that starts, on a thread of the pool.
void on_start(const PoolObject& p, nb::object f) {
  const std::weak_ptr<ClusterObject> cluster = p.cluster;
  auto* held = new nb::object(std::move(f));
  const std::shared_ptr<nb::object> shared(held, [](nb::object* o) {
    if (!Py_IsInitialized()) return;
    const nb::gil_scoped_acquire lock;
    delete o;
  });
  p.open().core().on_start([cluster, shared](size_t, const AnyRef& actor) {
    const auto open = cluster.lock();
    if (!open) return;
    const nb::gil_scoped_acquire lock;
    try {
      (*shared)(ActorObject{open, actor});
    } catch (const nb::python_error& e) {
      throw Error(ErrorKind::failed, std::string("pool.on_start: ") + e.what());
    }
  });
}

}  // namespace

void open_pools(nb::module_& m) {
  nb::class_<PoolObject>(m, "Pool")
      .def("call", call)
      .def("on_start", on_start)
      .def("again",
           [](const PoolObject& p, const std::string& method, int times) { p.open().again(method, times); })
      .def("incarnation",
           [](const PoolObject& p, size_t member) { return p.open().core().incarnation(member); })
      .def("__len__", [](const PoolObject& p) { return p.open().core().size(); })
      .def("end", [](const PoolObject& p) {
        const nb::gil_scoped_release free;
        p.pool->core().end();
      });
  m.def("pool", make_pool);
}

}  // namespace troupe::python
