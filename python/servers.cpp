// Parameter servers in Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/error.h"
#include "python/cluster.h"
#include "script/parallel.h"
#include "script/server_client.h"

namespace troupe::python {
namespace {

using namespace nb::literals;

struct ServedObject {
  ClusterPtr cluster;
  parallel::Served served;
};
struct ClientObject {
  ClusterPtr cluster;
  std::shared_ptr<script::ServerClient> client;
};

ServedObject serve(const ClusterPtr& c, nb::handle tensors, nb::handle on, nb::kwargs options) {
  const Tensors start = tensors_of(tensors, "serve(tensors)");
  const Value workers = conversion_of(on);
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {c, script::serve_tensors(c->session(), workers, start, std::move(given))};
}

void def_served(nb::module_& m) {
  nb::class_<ServedObject>(m, "Served", "Parameters in servers.")
      .def(
          "read",
          [](const ServedObject& s, int64_t at_least) {
            Tensors values;
            {
              const nb::gil_scoped_release free;
              values = s.cluster->session().get(parallel::read(s.served, at_least));
            }
            return conversion_of(Codec<Tensors>::to(values));
          },
          "at_least"_a = 0, "The values, with so many updates in them.")
      .def(
          "set_policy",
          [](const ServedObject& s, const std::string& policy) {
            const nb::gil_scoped_release free;
            s.cluster->session().get(parallel::set_policy(s.served, parallel::ServerPolicy::parse(policy)));
          },
          "policy"_a, "Another policy, while trainers go on.")
      .def(
          "set_options",
          [](const ServedObject& s, nb::kwargs options) {
            const ValueMap changed = values_of(options);
            const nb::gil_scoped_release free;
            s.cluster->session().get(parallel::set_options(s.served, changed));
          },
          "Other options of its optimizer: lr.")
      .def(
          "report",
          [](const ServedObject& s) {
            Value out;
            {
              const nb::gil_scoped_release free;
              out = script::report_value(s.cluster->session().get(parallel::report(s.served)));
            }
            return conversion_of(std::move(out));
          },
          "Of each block: policy, version, trainers, missing, delays, weights, ...")
      .def(
          "client",
          [](const ServedObject& s, const std::string& name) {
            return ClientObject{s.cluster, std::make_shared<script::ServerClient>(s.served, name)};
          },
          "name"_a = "", "A trainer of these parameters.")
      .def("_troupe_spec",  // as it goes to an actor, "ServedModule"
           [](const ServedObject& s) { return conversion_of(Codec<parallel::Served>::to(s.served)); })
      .def("__repr__", [](const ServedObject& s) {
        return "<" + std::to_string(s.served.shapes.size()) + " tensors in " +
               std::to_string(s.served.servers.size()) + " servers>";
      });
}

nb::object pull(const ClientObject& c, int64_t at_least) {
  const auto step = current_step();
  Future<Value> values;
  {
    const nb::gil_scoped_release free;
    const script::InStep in(step.get());
    values = c.client->pull(at_least);
  }
  return future_object(c.cluster, values, "pull of " + c.client->name());
}

template <auto Push>
nb::object push(const ClientObject& c, nb::handle tensors, double weight) {
  const Tensors given = tensors_of(tensors, "push(tensors)");
  Future<Value> done;
  {
    const nb::gil_scoped_release free;
    done = ((*c.client).*Push)(c.cluster->session(), given, weight);
  }
  return future_object(c.cluster, done, "push of " + c.client->name());
}

nb::object push_context(const ClientObject& c, double weight) {
  const auto step = step_with_gradients(c.cluster->session());
  if (!step)
    throw_invalid(
        "push_context pushes the gradients of a context: pull and push within `with cluster.context():`");
  Future<Value> done;
  {
    const nb::gil_scoped_release free;
    done = c.client->push_context(c.cluster->session(), *step, weight);
  }
  return future_object(c.cluster, done, "push of " + c.client->name());
}

}  // namespace

void open_servers(nb::module_& m) {
  def_served(m);
  nb::class_<ClientObject>(m, "Client", "A trainer of served parameters.")
      .def("pull", pull, "at_least"_a = 0, "A future of the values, when the policy lets this trainer read.")
      .def("push", push<&script::ServerClient::push>, "gradients"_a, "weight"_a = 1.0,
           "A future: gradients computed on the last pull.")
      .def("push_context", push_context, "weight"_a = 1.0,
           "A future: the gradients that the context has for what was pulled in it.")
      .def("push_values", push<&script::ServerClient::push_values>, "values"_a, "weight"_a = 1.0,
           "A future: under local(H), the values after H steps.")
      .def("leave",
           [](const ClientObject& c) {
             const nb::gil_scoped_release free;
             c.cluster->session().get(c.client->leave());
           })
      .def_prop_ro("version", [](const ClientObject& c) { return c.client->version(); });
  m.def("serve_tensors", serve);
}

}  // namespace troupe::python
