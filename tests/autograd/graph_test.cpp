// The picture of a graph.
#include "autograd/graph_dot.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/graph/node.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using Catch::Contains;

namespace {

using testing::content;

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("the picture shows operators, shapes, attributes, leaves and their names") {
  Tensor x = zeros({4, 3}), w = zeros({3, 2}).requires_grad_(), b = zeros({2}).requires_grad_();
  const Tensor hidden = ops::relu(ops::add(ops::matmul(x, w), b)), loss = ops::sum(hidden * 2.0, {0});
  const std::string dot = autograd::graph_dot(loss, {{"weight", w}, {"hidden", hidden}, {"loss", loss}});
  CHECK_THAT(dot, Contains("digraph autograd {"));
  CHECK_THAT(dot, Contains("label=\"matmul\\nfloat32 [4, 3], float32 [3, 2]\""));
  CHECK_THAT(dot, Contains("label=\"relu → hidden\\nfloat32 [4, 2]\""));
  CHECK_THAT(dot, Contains("label=\"weight\\nfloat32 [3, 2]\""));
  CHECK_THAT(dot, Contains("label=\"float32 [2]\""));  // b has no name
  CHECK_THAT(dot, Contains("dim = [0]"));
  CHECK_THAT(dot, Contains("label=\"loss\\nfloat32 [2]\""));
  CHECK(count(dot, " -> ") == 7);  // w, b, matmul, add, relu, mul_scalar, sum
}

TEST_CASE("labels are escaped, and a large graph is cut") {
  Tensor x = zeros({1}).requires_grad_();
  CHECK_THAT(autograd::graph_dot(ops::exp(x), {{"a \"b\"\\\n\tc", x}}),
             Contains("label=\"a \\\"b\\\"\\\\\\nc\\n"));
  Tensor y = x;
  for (int i = 0; i < 50; ++i) y = ops::exp(y);
  const std::string dot = autograd::graph_dot(y, {}, 10);
  CHECK(count(dot, "label=\"exp") == 10);
  CHECK_THAT(dot, Contains("1 more edges lead to steps that are not drawn"));
}

TEST_CASE("a picture needs a graph and a file to write") {
  testing::Folder folder;
  Tensor x = zeros({1}).requires_grad_();
  CHECK_THAT(testing::text_of([&] { autograd::graph_dot(Tensor()); }), Contains("undefined"));
  CHECK_THAT(testing::text_of([&] { autograd::graph_dot(x.detach()); }), Contains("needs no gradient"));
  CHECK_THAT(testing::text_of([&] { autograd::save_graph(x, "a.bmp"); }),
             Contains(".dot, .gv, .svg, .png or .pdf"));
  CHECK_THAT(testing::text_of([&] { autograd::save_graph(x, folder.path.string() + "/no/a.dot"); }),
             Contains("cannot write"));
  for (const char* name : {"/pipe.dot", "/pipe.svg"}) {
    const std::string pipe = folder.path.string() + name;
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THAT(testing::text_of([&] { autograd::save_graph(x, pipe); }),
               Contains(pipe + ": cannot be written: it is not a regular file"));
  }
  autograd::save_graph(ops::exp(x), folder.path.string() + "/a.dot");
  CHECK_THAT(content(folder.path.string() + "/a.dot"), Contains("label=\"exp"));
}

TEST_CASE("svg is drawn by Graphviz, or its absence is said") {
  testing::Folder folder;
  const std::string path = folder.path.string() + "/a b'\"$x.svg";
  Tensor x = zeros({1}).requires_grad_();
  if (std::system("dot -V >/dev/null 2>&1") != 0) {
    CHECK_THAT(testing::text_of([&] { autograd::save_graph(ops::exp(x), path); }),
               Contains("install Graphviz"));
    return;
  }
  autograd::save_graph(ops::exp(x), path);
  CHECK_THAT(content(path), Contains("<svg") && Contains("exp"));
  CHECK_FALSE(std::filesystem::exists(path + ".dot"));
}
