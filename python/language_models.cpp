// Language models in Python, troupe.llm.
#include "script/language_models.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/seed_stream.h"
#include "data/datasets/token_file.h"
#include "llm/adapters.h"
#include "llm/config.h"
#include "llm/pretrained.h"
#include "llm/tokenizer.h"
#include "python/pipeline_object.h"

namespace troupe::python {
namespace {

using namespace nb::literals;
using Ids = std::vector<int64_t>;

struct DecoderObject {
  std::shared_ptr<llm::Decoder> model;
};
struct ServedModelObject {
  ClusterPtr cluster;
  llm::ServedModel served;
};

Ids ids_of(const Value& value) {
  if (const auto* tensor = value.get_if<Tensor>()) return tensor->to(cpu).to_vector<int64_t>();
  return Codec<Ids>::from(value);
}

// ---- a model in this process

DecoderObject load_model(const std::string& folder, nb::kwargs options) {
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {script::load_language_model(folder, std::move(given))};
}

// What ids go on with; of a list of lists, what each does.
nb::object generate(const DecoderObject& d, nb::handle prompt, nb::kwargs options) {
  const Value given = conversion_of(prompt);
  const llm::GenerateOptions how = script::generate_options(values_of(options));
  const auto* list = given.get_if<ValueList>();
  const bool several = list && !list->empty() && list->front().get_if<ValueList>();
  const auto prompts = several ? Codec<std::vector<Ids>>::from(given) : std::vector<Ids>{ids_of(given)};
  std::vector<Ids> texts;
  {
    const nb::gil_scoped_release free;
    texts = llm::generate(*d.model, prompts, how);
  }
  return several ? nb::cast(texts) : nb::cast(texts[0]);
}

nb::dict dict_of(const nn::NamedTensors& tensors) {
  nb::dict out;
  for (const auto& [name, tensor] : tensors) out[name.c_str()] = tensor;
  return out;
}

void save_model(const DecoderObject& d, const std::string& folder) {
  const nb::gil_scoped_release free;
  d.model->options().lora ? llm::save_adapters(*d.model, folder) : llm::save_pretrained(*d.model, folder);
}

void def_decoder(nb::module_& m) {
  nb::class_<DecoderObject>(m, "Decoder")
      .def("forward",
           [](const DecoderObject& d, const Tensor& ids) {
             const nb::gil_scoped_release free;
             return (*d.model)(ids);
           })
      .def("generate", generate)
      .def("parameters", [](const DecoderObject& d) { return dict_of(d.model->named_parameters()); })
      .def("state_dict",
           [](const DecoderObject& d) {
             nb::dict out;
             for (const auto& [name, tensor] : d.model->state_dict()) out[name.c_str()] = tensor;
             return out;
           })
      .def("train", [](const DecoderObject& d, bool on) { d.model->train(on); })
      .def("merge", [](const DecoderObject& d) { d.model->drop_adapters(true); })
      .def("save", save_model)
      .def("config", [](const DecoderObject& d) { return llm::config_json(d.model->options()); })
      .def("__repr__", [](const DecoderObject& d) { return d.model->str(); });
  m.def("load_language_model", load_model);
  m.def("language_config", [](const std::string& path) { return llm::config_json(llm::read_config(path)); });
  m.def("make_language_model", [](const std::string& config) {
    const llm::DecoderOptions options = llm::parse_config(config, "llm.Decoder(config)");
    const nb::gil_scoped_release free;
    return DecoderObject{std::make_shared<llm::Decoder>(options)};
  });
}

// ---- tokens

void def_tokens(nb::module_& m) {
  nb::class_<llm::Tokenizer>(m, "Tokenizer", "A byte-level tokenizer of a tokenizer.json, or of its folder.")
      .def(nb::init<const std::string&>(), "path"_a)
      .def(
          "encode",
          [](const llm::Tokenizer& t, const std::string& text, bool special) {
            return t.encode(text, special);
          },
          "text"_a, "with_special"_a = true,
          "Ids of a text; with what the tokenizer puts around each text, if with_special.")
      .def(
          "decode",
          [](const llm::Tokenizer& t, nb::handle ids, bool skip) {
            return t.decode(ids_of(conversion_of(ids)), skip);
          },
          "ids"_a, "skip_special"_a = true, "The text of ids.")
      .def_prop_ro("vocab_size", [](const llm::Tokenizer& t) { return t.vocab_size(); });
  using datasets::TokenFile;
  nb::class_<TokenFile>(
      m, "TokenFile", "A file of token ids (.bin), read where they are asked for; bytes: of each id, 2 or 4.")
      .def(nb::init<const std::string&, int>(), "path"_a, "bytes"_a = 2)
      .def("__len__", [](const TokenFile& f) { return f.size(); })
      .def(
          "read", [](const TokenFile& f, int64_t first, int64_t count) { return f.read(first, count); },
          "first"_a, "count"_a, "Ids [first, first + count).")
      .def(
          "random_windows",
          [](const TokenFile& f, int64_t context, int64_t count, int64_t first, int64_t end) {
            Generator random(current_stream().next());
            const auto set = f.random_windows(context, count, random, first, end);
            return nb::make_tuple(set.x, set.y);
          },
          "context"_a, "count"_a, "first"_a = 0, "end"_a = 0,
          "x and y, int64 [count, context], of ids [first, end); end 0: all.");
  m.def(
      "write_token_file",
      [](const std::string& path, nb::handle ids, int bytes) {
        datasets::write_token_file(path, ids_of(conversion_of(ids)), bytes);
      },
      "path"_a, "ids"_a, "bytes"_a = 2, "Writes a file of token ids.");
}

// ---- on a mesh, and served

PipelineObject make_stages(const MeshObject& mesh, const std::string& path, nb::kwargs options) {
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {mesh.cluster, nullptr,
          script::language_stages(mesh.cluster->session(), mesh.mesh, path, std::move(given))};
}

ServedModelObject serve_model(const ClusterPtr& c, const std::string& folder, nb::kwargs options) {
  ValueMap given = values_of(options);
  const nb::gil_scoped_release free;
  return {c, script::serve_language_model(c->session(), folder, std::move(given))};
}

nb::object served_generate(const ServedModelObject& s, nb::handle prompt, nb::kwargs options) {
  const Ids ids = ids_of(conversion_of(prompt));
  const llm::GenerateOptions how = script::generate_options(values_of(options));
  Future<Value> written;
  {
    const nb::gil_scoped_release free;
    written = s.served.write(s.cluster->session().cluster().here(), ids, how).then([](const Ids& all) {
      return Codec<Ids>::to(all);
    });
  }
  return future_object(s.cluster, written, "generate on " + s.served.server.str());
}

nb::object served_report(const ServedModelObject& s) {
  llm::ServerReport r;
  {
    const nb::gil_scoped_release free;
    r = s.cluster->session().get(s.served.server.call<&llm::ModelServer::report>());
  }
  return conversion_of(Value(ValueMap{{"texts", r.texts},
                                      {"waiting", r.waiting},
                                      {"pages", r.pages},
                                      {"free_pages", r.free_pages},
                                      {"steps", r.steps},
                                      {"tokens", r.tokens}}));
}

}  // namespace

void open_language_models(nb::module_& m) {
  def_decoder(m);
  def_tokens(m);
  m.def("language_stages", make_stages);
  m.def("save_stages", [](const PipelineObject& p, const std::string& folder) {
    if (!p.several())
      throw_invalid("[llm] these pipelines train no language model: expected those of llm.stages()");
    const nb::gil_scoped_release free;
    script::save_language_model(*p.several(), folder);
  });
  nb::class_<ServedModelObject>(m, "ServedModel", "A language model that answers several clients.")
      .def("generate", served_generate, "A future of what ids go on with.")
      .def("report", served_report, "What the server is doing, by name.");
  m.def("serve_language_model", serve_model);
}

}  // namespace troupe::python
