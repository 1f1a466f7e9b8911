// What fragments of code in docs/ take for granted; tests/docs_blocks.py compiles them with it. Names of one
// page are in its namespace.
#pragma once
#include <chrono>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <troupe/calls.h>
#include <troupe/claim.h>
#include <troupe/data.h>
#include <troupe/gradients.h>
#include <troupe/groups.h>
#include <troupe/layout.h>
#include <troupe/llm.h>
#include <troupe/operators.h>
#include <troupe/pipeline.h>
#include <troupe/profile.h>
#include <troupe/replicas.h>
#include <troupe/server.h>
#include <troupe/tensor_parallel.h>

namespace docs {
using namespace troupe;
using namespace std::chrono_literals;

extern Cluster& cluster;
extern Tensor x, y, ids;
extern nn::Sequential model;
extern datasets::Loader loader;
Tensor loss(const Tensor& output);
Tensor loss(const Tensor& output, const Tensor& y);

struct Layer : Actor {
  explicit Layer(int64_t in = 1, int64_t out = 1);
  Tensor forward(Tensor x);
  Tensor loss(Tensor output, Tensor target);
  Task<Tensor> forward_of(Remote<Tensor> h);
  static constexpr auto remote = methods<&Layer::forward, &Layer::loss, &Layer::forward_of>;
};

namespace page_call_actors {
extern RRef<Layer> a;
struct Stage : Actor {
  void load(std::string path);
  static constexpr auto remote = methods<&Stage::load>;
};
extern std::vector<RRef<Stage>> stages;
extern std::string path;
}  // namespace page_call_actors

namespace page_checkpoints {
extern optim::SGD optimizer;
extern int64_t step;
}  // namespace page_checkpoints

namespace page_elastic {
extern autograd::Context step;
extern optim::Distributed<optim::SGD> generator, critic, optimizer;
extern parallel::Client client;
extern double n;
}  // namespace page_elastic

namespace page_contexts {
extern RRef<Layer> a, b;
extern optim::Distributed<optim::SGD> optimizer;
extern Tensor t;
struct Server : Actor {
  Server();
  Tensor forward(Tensor x);
  nn::Linear fc;
  static constexpr auto remote = methods<&Server::forward>;
};
struct Trainer : Actor {
  Task<void> step(RRef<Server> server, Tensor x);
  Tensor v;
};
}  // namespace page_contexts

namespace page_debug_gradients {
extern nn::Sequential block;
}

namespace page_errors {
extern RRef<Layer> a;
}

namespace page_parameter_server {
extern autograd::Context context;
}

namespace page_policies {
extern std::vector<Place> places;
extern Tensors model_parameters;
}  // namespace page_policies

namespace page_pipeline {
using Hidden = Layer;
using Output = Layer;
extern RRef<Layer> a, b;
extern optim::Distributed<optim::SGD> optimizer;
extern parallel::Pipeline pipeline;
struct Down : Actor {
  std::pair<Tensor, Tensor> forward(Tensor x);
  static constexpr auto remote = methods<&Down::forward>;
};
using Middle = Layer;
struct Up : Actor {
  Tensor forward(Tensor x, Tensor fine);
  static constexpr auto remote = methods<&Up::forward>;
};
extern RRef<Down> down;
extern RRef<Middle> middle;
extern RRef<Up> up;
}  // namespace page_pipeline

namespace page_platforms {
struct Notes : Actor {
  void add(std::string text);
  static constexpr auto remote = methods<&Notes::add>;
};
extern RRef<Notes> notes;
extern std::string x, y;
extern bool b;
}  // namespace page_platforms

namespace page_references {
struct Layer : Actor {
  Layer(int64_t in, int64_t out);
  Tensor forward(Tensor x);
  Task<Tensor> forward_of(Remote<Tensor> h);
  static constexpr auto remote = methods<&Layer::forward, &Layer::forward_of>;
};
using Server = Layer;
extern RRef<Layer> a, b;
}  // namespace page_references

namespace page_second_derivatives {
extern RRef<Layer> a, b;
extern optim::Distributed<optim::SGD> optimizer;
}  // namespace page_second_derivatives

namespace page_sharded {
struct Part : Actor {
  Part(Mesh mesh, int64_t width);
  Task<Tensor> forward(Tensor x);
  Task<Tensor> loss(Tensor output, Tensor target);
  static constexpr auto remote = methods<&Part::forward, &Part::loss>;
};
}  // namespace page_sharded
}  // namespace docs
