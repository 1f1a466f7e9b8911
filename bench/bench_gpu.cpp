// Kernels and a training step on one GPU: the lines of torch_gpu.py.
#include "bench/measure.h"
#include "bench/transformer.h"
#include "core/memory/backend.h"
#include "core/tensor/elements.h"
#include "tools/flags/flags.h"
#include "troupe/troupe.h"
#ifdef TROUPE_CUDA_SIM
#include "bench/gpu_audit.h"
#endif
using namespace troupe;

namespace {

constexpr int kNoGpu = 77;  // as tests say that they were skipped

Tensor labels(int64_t n, int64_t count, Device device) {
  Generator generator(1);
  std::vector<int64_t> ids(static_cast<size_t>(n));
  for (auto& id : ids) id = static_cast<int64_t>(generator.below(static_cast<uint64_t>(count)));
  return tensor(ids).data_on(device);
}

class Gpu {
 public:
  Gpu(const bench::Bench& bench, Device device) : bench_(bench), device_(device) {}

  void run() {
    memory();
    for (const int64_t n : quick() ? std::vector<int64_t>{64} : std::vector<int64_t>{1024, 4096, 8192})
      products(n);
    rows();
    optimizer();
    Tensor tiny = drawn({8, 8}, float32).requires_grad_();
    bench_.emit("gpu_tiny_op_us", us([&] { autograd::backward(sum(tiny * tiny + tiny)); }, 100), "us",
                {{"ops", 3}});
    attention();
    pieces();
    step();
  }

 private:
  bool quick() const { return bench_.quick(); }
  Tensor drawn(const Shape& shape, DType dtype) {
    return randn(shape, generator_, float32).data_on(device_).to(dtype);
  }
  // Of one call, when the device is kept busy with them.
  double us(const std::function<void()>& f, int inner = 10) const {
    const int calls = quick() ? 2 : inner;
    return bench_.median_us(
               [&] {
                 for (int i = 0; i < calls; ++i) f();
                 backend_of(device_).synchronize(device_);
               },
               10, 2) /
           calls;
  }

  void memory() {
    const int64_t n = quick() ? 1 << 12 : 1 << 27;
    const Tensor x = drawn({n}, float32), y = empty({n}, {float32, device_});
    const double bytes = static_cast<double>(n) * 4e-3, mib = static_cast<double>(n >> 18);
    bench_.emit("gpu_copy_gb_per_s", 2 * bytes / us([&] { copy_elements(y, x); }), "GB/s", {{"mib", mib}});
    bench_.emit("gpu_add_gb_per_s", 3 * bytes / us([&] { add(x, y); }), "GB/s", {{"mib", mib}});
  }

  void products(int64_t n) {
    const double flops = 2e-6 * static_cast<double>(n * n * n);
    for (const auto& [name, dtype, precision] :
         {std::tuple("bf16", bfloat16, "highest"), {"tf32", float32, "high"}, {"fp32", float32, "highest"}}) {
      const Tensor a = drawn({n, n}, dtype), b = drawn({n, n}, dtype);
      set_float32_matmul_precision(precision);
      bench_.emit(std::string("gpu_gemm_") + name + "_tflops", flops / us([&] { matmul(a, b); }), "TFLOP/s",
                  {{"n", static_cast<double>(n)}});
      set_float32_matmul_precision("highest");
    }
  }

  // The gradients of all leaves for a result of f, with one for it that is given.
  void both(const char* name, const Tensors& leaves, const Tensor& g, const std::function<Tensor()>& f,
            std::initializer_list<std::pair<const char*, double>> sizes) {
    bench_.emit(name, us([&] { autograd::grad({f()}, leaves, {g}); }), "us", sizes);
  }

  void rows() {
    const int64_t n = quick() ? 64 : 16384, width = quick() ? 256 : 4096, classes = quick() ? 128 : 50304;
    const auto rows = static_cast<double>(n), columns = static_cast<double>(width);
    {
      Tensor h = drawn({n, width}, float32), w = drawn({width}, float32), c = drawn({width}, float32);
      const Tensor g = drawn({n, width}, float32);
      bench_.emit("gpu_layer_norm_us", us([&] { layer_norm(h, width, w, c); }), "us",
                  {{"rows", rows}, {"width", columns}});
      bench_.emit("gpu_softmax_us", us([&] { softmax(h, 1); }), "us", {{"rows", rows}, {"width", columns}});
      bench_.emit("gpu_gelu_us", us([&] { gelu(h); }), "us", {{"rows", rows}, {"width", columns}});
      for (Tensor* t : {&h, &w, &c}) t->requires_grad_();
      both("gpu_layer_norm_both_us", {h, w, c}, g, [&] { return layer_norm(h, width, w, c); },
           {{"rows", rows}, {"width", columns}});
    }
    const Tensor ids = labels(n / 2, classes, device_);
    const auto of_classes = {std::pair("rows", rows / 2), std::pair("classes", static_cast<double>(classes))};
    {
      Tensor logits = drawn({n / 2, classes}, float32).requires_grad_();
      both(
          "gpu_cross_entropy_both_us", {logits}, tensor(1, {float32, device_}),
          [&] { return cross_entropy(logits, ids); }, of_classes);
    }
    Tensor table = drawn({classes, 768}, float32).requires_grad_();
    both(
        "gpu_embedding_both_us", {table}, drawn({n / 2, 768}, float32), [&] { return embedding(ids, table); },
        of_classes);
  }

  void optimizer() {
    std::vector<Tensor> parameters;
    const int64_t width = quick() ? 8 : 1024;
    for (int i = 0; i < 118; ++i) parameters.push_back(drawn({1024, width}, float32).requires_grad_());
    optim::AdamW adam(parameters, {.lr = 1e-3});
    Tensor all = tensor(0, {float32, device_});
    for (const Tensor& p : parameters) all = all + sum(p);
    autograd::backward(all);
    bench_.emit("gpu_adamw_us", us([&] { adam.step(); }), "us",
                {{"parameters", static_cast<double>(118 * 1024 * width)}});
  }

  void attention() {
    const auto shapes = quick()
                            ? std::vector<std::pair<int64_t, int64_t>>{{64, 64}}
                            : std::vector<std::pair<int64_t, int64_t>>{{1024, 64}, {4096, 64}, {4096, 128}};
    for (const auto& [length, width] : shapes) {
      const int64_t heads = (quick() ? 128 : 2048) / width,
                    batch = quick() ? 1 : std::max<int64_t>(1, 16384 / length);
      for (const DType t : {float32, bfloat16}) {
        Tensors qkv;
        for (int i = 0; i < 3; ++i) qkv.push_back(drawn({batch, heads, length, width}, t).requires_grad_());
        const Tensor g = drawn({batch, heads, length, width}, t);
        const auto f = [&] { return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, true); };
        const auto sizes = {std::pair("length", static_cast<double>(length)),
                            std::pair("head", static_cast<double>(width)),
                            std::pair("batch", static_cast<double>(batch))};
        const bool half = t == bfloat16;
        bench_.emit(half ? "gpu_attention_bf16_us" : "gpu_attention_us", us([&] { f(); }, 3), "us", sizes);
        bench_.emit(half ? "gpu_attention_bf16_both_us" : "gpu_attention_both_us",
                    us([&] { autograd::grad({f()}, qkv, {g}); }, 3), "us", sizes);
      }
    }
  }

  // What a step of GPT-2 is made of, in its sizes and bfloat16, both ways: where a step is slow shows here.
  void pieces() {
    const int64_t batch = quick() ? 2 : 8, context = quick() ? 32 : 1024, heads = quick() ? 2 : 12,
                  width = 64 * heads, rows = batch * context, classes = quick() ? 128 : 50304;
    const auto sizes = {std::pair("rows", static_cast<double>(rows)),
                        std::pair("width", static_cast<double>(width))};
    const auto leaf = [&](const Shape& shape) { return drawn(shape, bfloat16).requires_grad_(); };
    Tensors qkv;
    for (int i = 0; i < 3; ++i) qkv.push_back(leaf({batch, heads, context, 64}));
    const auto attend = [&] { return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, true); };
    bench_.emit("gpu_piece_attention_us", us([&] { attend(); }), "us", sizes);
    both("gpu_piece_attention_both_us", qkv, drawn({batch, heads, context, 64}, bfloat16), attend, sizes);
    const Tensor x = leaf({rows, width}), g = drawn({rows, width}, bfloat16);
    const Tensor w = leaf({width}), b = leaf({width});
    both(
        "gpu_piece_norm_both_us", {x, w, b}, g, [&] { return layer_norm(x, width, w, b); }, sizes);
    const Tensor up = leaf({4 * width, width}), of_up = leaf({4 * width}), down = leaf({width, 4 * width});
    both(
        "gpu_piece_mlp_both_us", {x, up, of_up, down, b}, g,
        [&] { return linear(linear_gelu(x, up, of_up), down, b); }, sizes);
    const Tensor ids = labels(rows, classes, device_), head = leaf({classes, width}),
                 of_head = leaf({classes});
    both(
        "gpu_piece_loss_both_us", {x, head, of_head}, tensor(1, {bfloat16, device_}),
        [&] { return cross_entropy(linear(x, head, of_head), ids); }, sizes);
  }

  // GPT-2 of 124 million parameters (its head is a matrix of its own here) in bfloat16, with master copies.
  void step() {
    const int64_t vocabulary = quick() ? 128 : 50304, width = quick() ? 64 : 768, layers = quick() ? 2 : 12,
                  heads = quick() ? 2 : 12, context = quick() ? 32 : 1024;
    for (const int64_t batch : quick() ? std::vector<int64_t>{2} : std::vector<int64_t>{8, 32}) {
      bench::CharTransformer model(vocabulary, width, layers, heads, context);
      model.to(device_);
      model.to(bfloat16);
      optim::AdamW adam(model.parameters(), {.lr = 6e-4});
      const Tensor ids = labels(batch * context, vocabulary, device_);
      const double ms = us(
                            [&] {
                              const Tensor scores = model(ids.reshape({batch, context}));
                              autograd::backward(cross_entropy(scores, ids));
                              adam.step();
                              adam.zero_grad();
                            },
                            4) /
                        1e3;
      bench_.emit("gpu_gpt2_step_ms", ms, "ms",
                  {{"batch", static_cast<double>(batch)}, {"context", static_cast<double>(context)}});
    }
  }

  const bench::Bench& bench_;
  const Device device_;
  Generator generator_{0};
};

// What a step asks of the device, without one.
int dry_run() {
#ifdef TROUPE_CUDA_SIM
  const bench::Gpt2 size;
  std::fputs(bench::table_of(bench::audit_step(size), size, bench::kH200).c_str(), stdout);
  return 0;
#else
  std::fputs("bench_gpu: --dry needs simulated GPUs; ./dev bench gpu --dry builds them\n", stderr);
  return 1;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  std::string name;
  bool dry = false;
  const bench::Bench bench(
      "bench_gpu", "Kernels and a training step on one GPU.", argc, argv, [&](tools::Flags& flags) {
        flags.add("--device", name, "cuda:0 unless given; the CPU with --quick shows that the program works");
        flags.add("--dry", dry, "count what a step of GPT-2 asks of a GPU, on a simulated one");
      });
  if (bench.exit_code) return *bench.exit_code;
  if (dry) return dry_run();
  if (name.empty()) name = "cuda:0";
  try {
    const Device device(name);
    if (!has_device(device)) {
      std::fprintf(stderr, "bench_gpu: there is no %s here: nothing was measured\n", name.c_str());
      return kNoGpu;
    }
    Gpu(bench, device).run();
  } catch (const Error& e) {  // without CUDA the program does not know the name
    std::fprintf(stderr, "bench_gpu: %s\n", e.what());
    return e.kind() == ErrorKind::unimplemented ? kNoGpu : 1;
  }
}
