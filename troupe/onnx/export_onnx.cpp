#include "troupe/onnx/export_onnx.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "data/formats/file.h"
#include "ops/dispatch/call_trace.h"
#include "troupe/onnx/onnx_operators.h"

namespace troupe {

namespace {

// Adds each operator of its thread to a graph.
class GraphTrace final : public internal::CallTrace {
 public:
  explicit GraphTrace(internal::onnx::OnnxGraph& graph) : graph_(graph) {}
  void applied(const ops::Call& call, const Tensors& out) override {
    internal::onnx::add_operator(graph_, call, out);
  }
  void wrote(const ops::Op& op) override {
    throw_invalid(
        fmt::format("[onnx] {} writes in place, which a graph cannot say: compute a new tensor", op.name));
  }

 private:
  internal::onnx::OnnxGraph& graph_;
};

// Modes of a module and of all inside, as they were.
class ForUse {
 public:
  explicit ForUse(nn::Module& module) { enter(module); }
  ~ForUse() {
    for (auto& [module, training] : before_) module->train(training);
  }
  ForUse(const ForUse&) = delete;

 private:
  void enter(nn::Module& module) {
    for (auto& [name, child] : module.children()) enter(*child);
    before_.insert(before_.begin(),
                   {&module, module.training()});  // outer ones first: train() is of all inside
    module.eval();
  }
  std::vector<std::pair<nn::Module*, bool>> before_;
};

}  // namespace

void export_onnx(nn::Layer& layer, const Tensor& sample, const std::string& file,
                 const OnnxOptions& options) {
  if (!sample.defined()) throw_invalid("[onnx] the sample is undefined: give an input of the layer");
  internal::onnx::OnnxGraph graph(layer.str());
  const NoGradGuard no_grad;
  const ForUse in_use(layer);
  for (const auto& [name, t] : layer.named_buffers()) graph.name_constant(t, name);
  for (const auto& [name, t] : layer.named_parameters()) graph.name_constant(t, name);
  graph.add_input(options.input, sample);
  {
    const GraphTrace trace(graph);
    const Tensor result = layer(sample);
    graph.add_output(options.output, result);
  }
  const std::string model = graph.model();
  if (model.size() >= (size_t{1} << 31))
    throw_invalid(
        fmt::format("[onnx] the model has {} bytes, and a file of ONNX less than 2 GiB", model.size()));
  datasets::AtomicFile out(file, "onnx");
  out.write(model.data(), model.size());
  out.commit();
}

}  // namespace troupe
