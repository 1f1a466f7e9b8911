#include "autograd/graph_dot.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "core/graph/node.h"

namespace troupe::autograd {
namespace {

// As the inside of a quoted string of the dot language.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

std::string name_of(const Tensor& t, const TensorNames& names) {
  for (const auto& [name, named] : names)
    if (named.defined() && named.is_same(t)) return name;
  return {};
}

// "mul" and, below it, the detail.
std::string label_of(const Node& node, const TensorNames& names) {
  if (node.end() == Node::End::leaf) {
    const Tensor leaf = static_cast<const Accumulate&>(node).leaf();
    const std::string name = name_of(leaf, names);
    return name.empty() ? leaf.summary() : name + "\n" + leaf.summary();
  }
  std::string label = node.name();
  for (const auto& [name, named] : names)
    if (named.defined() && named.grad_fn().node.get() == &node) label += " → " + name;
  const std::string detail = node.detail();
  return detail.empty() ? label : label + "\n" + detail;
}

const char* style_of(const Node& node) {
  switch (node.end()) {
    case Node::End::leaf:
      return "fillcolor=\"#d8ead3\", color=\"#6a9955\", style=\"filled,rounded\"";
    case Node::End::exit:
      return "fillcolor=\"#fde4cf\", color=\"#d08030\", style=\"filled,dashed\"";
    case Node::End::later:
      return "fillcolor=\"#e8eef7\", color=\"#5b7db1\", style=\"filled,dashed\"";
    case Node::End::none:
      break;
  }
  return "fillcolor=\"#e8eef7\", color=\"#5b7db1\", style=filled";
}

void write_file(const std::string& path, const std::string& text) {
  refuse_unless_writable_file(path, "[save_graph] ");
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush())
    throw_invalid(fmt::format("[save_graph] cannot write {}: {}", path, std::strerror(errno)));
}

// Whether the program ran and succeeded. No shell: a path may hold anything.
bool run_dot(const std::string& format, const std::string& from, const std::string& to) {
  std::string program = "dot", kind = "-T" + format, in = from, flag = "-o", out = to;
  char* arguments[] = {program.data(), kind.data(), flag.data(), out.data(), in.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, "dot", nullptr, nullptr, arguments, environ);
  if (error == ENOENT)
    throw_invalid(
        "[save_graph] the program dot is not there: install Graphviz (apt-get install graphviz), or save the "
        "text to a .dot file");
  if (error) throw_invalid(fmt::format("[save_graph] cannot start dot: {}", std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string graph_dot(const Tensor& root, const TensorNames& names, size_t max_nodes) {
  if (!root.defined()) throw_invalid("[graph_dot] the tensor is undefined");
  const Edge first = root.gradient_edge();
  if (!first)
    throw_invalid("[graph_dot] the tensor (" + root.summary() + ") needs no gradient: it has no graph");
  std::unordered_map<const Node*, size_t> numbers{{first.node.get(), 0}};
  std::vector<Node*> nodes{first.node.get()};  // breadth first from the root
  std::string edges;
  size_t cut = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Edge& edge : nodes[i]->next()) {
      if (!edge) continue;
      Node* below = edge.node.get();
      if (!numbers.contains(below)) {
        if (nodes.size() >= max_nodes) {
          ++cut;
          continue;
        }
        numbers[below] = nodes.size();
        nodes.push_back(below);
      }
      edges += fmt::format("  n{} -> n{}{};\n", numbers[below], i,
                           below->num_inputs() > 1 ? fmt::format(" [taillabel=\"{}\"]", edge.input) : "");
    }
  }
  const std::string named = name_of(root, names);
  std::string text =
      "digraph autograd {\n"
      "  bgcolor=white; rankdir=TB; nodesep=0.3; ranksep=0.35;\n"
      "  node [shape=box, fontname=\"Helvetica\", fontsize=11, margin=\"0.14,0.07\", penwidth=1.1];\n"
      "  edge [color=\"#707070\", arrowsize=0.7, fontname=\"Helvetica\", fontsize=9];\n";
  for (size_t i = 0; i < nodes.size(); ++i)
    text += fmt::format("  n{} [label=\"{}\", {}];\n", i, escaped(label_of(*nodes[i], names)),
                        style_of(*nodes[i]));
  text += edges;
  text += fmt::format(
      "  result [label=\"{}\", fillcolor=\"#fff3c4\", color=\"#b89b2e\", style=\"filled,rounded\"];\n",
      escaped((named.empty() ? "" : named + "\n") + root.summary()));
  text += "  n0 -> result;\n";
  if (cut)
    text += fmt::format(
        "  label=\"{} more edges lead to steps that are not drawn\"; fontname=\"Helvetica\";\n", cut);
  return text + "}\n";
}

void save_graph(const Tensor& root, const std::string& path, const TensorNames& names, size_t max_nodes) {
  refuse_unless_writable_file(path, "[save_graph] ");
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending != ".dot" && ending != ".gv" && ending != ".svg" && ending != ".png" && ending != ".pdf")
    throw_invalid("[save_graph] got the file name " + path +
                  ", expected one that ends in .dot, .gv, .svg, .png or .pdf");
  const std::string text = graph_dot(root, names, max_nodes);
  if (ending == ".dot" || ending == ".gv") return write_file(path, text);
  const std::string source = path + ".dot";
  write_file(source, text);
  bool drawn = false;
  try {
    drawn = run_dot(ending.substr(1), source, path);
  } catch (...) {
    std::remove(source.c_str());
    throw;
  }
  std::remove(source.c_str());
  if (!drawn) throw_invalid("[save_graph] dot could not write " + path);
}

}  // namespace troupe::autograd
