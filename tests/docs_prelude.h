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
#include <troupe/data.h>
#include <troupe/gradients.h>
#include <troupe/operators.h>
#include <troupe/pipeline.h>
#include <troupe/profile.h>
#include <troupe/replicas.h>
#include <troupe/server.h>

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

namespace page_autograd {
extern Tensor t;
extern nn::Sequential block;
}  // namespace page_autograd

namespace page_calls {
struct Stage : Actor {
  void load(std::string path);
  static constexpr auto remote = methods<&Stage::load>;
};
struct Notes : Actor {
  void add(std::string text);
  static constexpr auto remote = methods<&Notes::add>;
};
extern std::vector<RRef<Stage>> stages;
extern RRef<Notes> notes;
extern std::string path, x, y;
extern bool b;
}  // namespace page_calls

namespace page_distributed_autograd {
extern RRef<Layer> a, b;
extern optim::Distributed<optim::SGD> optimizer;
struct Server : Actor {
  Server();
  Tensor forward(Tensor x);
  nn::Linear fc;
  static constexpr auto remote = methods<&Server::forward>;
};
struct Embedding : Actor {
  Tensor rows(Tensor ids);
  static constexpr auto remote = methods<&Embedding::rows>;
};
struct Batch {
  Tensor ids, y;
  double size() const;
};
struct Trainer : Actor {
  Task<void> step(RRef<Server> server, Tensor x);
  Task<void> step(RRef<Embedding> table, Batch batch);
  Tensor v;
  nn::Linear dense;
};
}  // namespace page_distributed_autograd

namespace page_parameter_server {
using namespace troupe::parallel;
extern std::vector<Place> places;
extern Tensors model_parameters;
extern autograd::Context context;
Tensor model(const Tensors& w, const Tensor& x);
}  // namespace page_parameter_server

namespace page_pipelines {
using namespace troupe::parallel;
using Hidden = Layer;
using Output = Layer;
extern RRef<Layer> a, b;
extern optim::Distributed<optim::SGD> optimizer;
extern Pipeline pipeline;
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
}  // namespace page_pipelines

namespace page_profiling {
void train_one_step();
}

namespace page_randomness {
using Half = Layer;
}

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

namespace page_running {
void driver(Cluster& cluster);
}

namespace page_saving {
extern optim::SGD optimizer;
extern int64_t step;
}  // namespace page_saving
}  // namespace docs
