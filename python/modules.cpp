// Modules of C++ in Python: the package's nn.Linear and its like are Python classes around them.
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/base/error.h"
#include "core/codec/codec.h"
#include "data/formats/safetensors.h"
#include "nn/init.h"
#include "optim/clip.h"
#include "python/conversion.h"
#include "script/modules.h"

namespace troupe::python {

namespace {

using namespace nb::literals;

struct LayerObject {
  script::NamedModule module;
  nn::Layer& layer() { return module.made(); }
};

nb::dict named(const nn::NamedTensors& tensors) {
  nb::dict out;
  for (const auto& [name, tensor] : tensors) out[name.c_str()] = tensor;
  return out;
}

// Puts another tensor in the place of a parameter.
class Replacing final : public nn::Members {
 public:
  Replacing(std::string name, Tensor tensor) : name_(std::move(name)), tensor_(std::move(tensor)) {}
  void operator()(const std::string& name, Tensor& parameter) override { replace(name, parameter); }
  void operator()(const std::string& name, nn::Module& child) override {
    const std::string before = prefix_;
    if (!name.empty()) prefix_ += name + ".";
    child.members(*this);
    prefix_ = before;
  }
  void buffer(const std::string& name, Tensor& buffer) override { replace(name, buffer); }
  bool done() const { return done_; }

 private:
  void replace(const std::string& name, Tensor& tensor) {
    if (prefix_ + name != name_) return;
    if (tensor.defined() && tensor.shape() != tensor_.shape())
      throw_invalid("[nn] " + name_ + " is " + tensor.summary() + ", got " + tensor_.summary());
    tensor = tensor_;
    done_ = true;
  }
  std::string name_, prefix_;
  Tensor tensor_;
  bool done_ = false;
};

void def_layer(nb::module_& m) {
  nb::class_<LayerObject>(m, "Layer")
      .def("forward",
           [](LayerObject& l, const Tensor& x) {
             const nb::gil_scoped_release free;
             return l.layer()(x);
           })
      .def("parameters", [](LayerObject& l) { return named(l.layer().named_parameters()); })
      .def("buffers", [](LayerObject& l) { return named(l.layer().named_buffers()); })
      .def("replace",
           [](LayerObject& l, const std::string& name, const Tensor& tensor) {
             Replacing replacing(name, tensor);
             l.layer().members(replacing);
             if (!replacing.done()) throw_invalid("[nn] the module has no parameter or buffer " + name);
           })
      .def("train", [](LayerObject& l, bool on) { l.layer().train(on); })
      .def("to_dtype",
           [](LayerObject& l, nb::handle t) {
             const auto dtype = Codec<DType>::from(conversion_of(t));
             l.layer().to(dtype);
             if (auto* spec = l.module.spec.get_if<ValueMap>(); spec && spec->contains("dtype"))
               (*spec)["dtype"] = std::string(name(dtype));  // what is made of it elsewhere has it, too
           })
      .def("to_device", [](LayerObject& l, const std::string& device) { l.layer().to(Device(device)); })
      .def("spec", [](LayerObject& l) { return conversion_of(Value(l.module.spec)); })
      .def("__repr__", [](LayerObject& l) { return l.layer().str(); });
  m.def("layer", [](const std::string& name, nb::args args, nb::kwargs kwargs) {
    LayerObject out{script::module_of(name, values_of(args), values_of(kwargs))};
    const nb::gil_scoped_release free;
    out.layer();  // now: its initial values are the next random numbers
    return out;
  });
}

}  // namespace

void open_modules(nb::module_& m) {
  def_layer(m);
  m.def("clip_grad_norm_", [](nb::handle parameters, double most) {
    const Tensors tensors = tensors_of(parameters, "clip_grad_norm_(parameters, max_norm)");
    return optim::clip_grad_norm_(tensors, most);
  });
  m.def(
      "save_safetensors",
      [](const std::string& path, nb::handle state) {
        const auto tensors = state_at(state, "save_safetensors(path, state)");
        const nb::gil_scoped_release free;
        datasets::write_safetensors(path, tensors);
      },
      "path"_a, "state"_a, "Writes tensors by name: save_safetensors(path, model.state_dict()).");
  m.def(
      "load_safetensors",
      [](const std::string& path) {
        std::map<std::string, Tensor> state;
        {
          const nb::gil_scoped_release free;
          state = datasets::read_safetensors(path);
        }
        nb::dict out;
        for (const auto& [name, tensor] : state) out[name.c_str()] = tensor;
        return out;
      },
      "path"_a, "Reads a safetensors file: tensors by name.");
}

}  // namespace troupe::python
