#include "data/datasets/set_catalog.h"

#include "core/base/error.h"
#include "data/datasets/csv.h"
#include "data/datasets/digits.h"
#include "data/datasets/idx.h"
#include "data/datasets/text.h"
#include "data/formats/npy.h"

namespace troupe::datasets {
namespace {

using Table = std::vector<Maker<Dataset>>;

using internal::with;

[[noreturn]] void refuse(const char* set, const char* parameter, const std::string& expected,
                         const std::string& got) {
  throw_invalid(std::string("[data] ") + set + ": " + parameter + " must be " + expected + ", got \"" + got +
                "\"");
}

// Samples and labels of two files.
Dataset paired(const char* set, Tensor x, Tensor y) {
  if (x.dim() == 0 || y.dim() == 0 || x.size(0) != y.size(0))
    throw_invalid(std::string("[data] ") + set +
                  ": the two files must have as many rows as each other, got " + x.summary() + " and " +
                  y.summary());
  return {std::move(x), std::move(y)};
}

Missing missing_of(const std::string& what) {
  if (what == "refuse") return Missing::refuse;
  if (what == "skip_row") return Missing::skip_row;
  if (what == "fill") return Missing::fill;
  refuse("csv", "missing", "\"refuse\", \"skip_row\" or \"fill\"", what);
}

Table make_table() {
  Table t;
  t.push_back(maker<Dataset>(
      "digits",
      [](int64_t count, int64_t seed) { return generated_digits(count, static_cast<uint64_t>(seed)); },
      {with("count", int64_t{10000}), with("seed", int64_t{0})},
      "Digits drawn by the program itself: x [count, 784], y 0 to 9."));
  t.push_back(maker<Dataset>(
      "mnist",
      [](std::string path, std::string part) {
        if (part == "all") return mnist(path);
        if (part == "train") return mnist_split(path).train;
        if (part == "test") return mnist_split(path).test;
        refuse("mnist", "part", "\"all\", \"train\" or \"test\"", part);
      },
      {{"path"}, with("part", std::string("all"))},
      "MNIST, or another set of its form, in a folder; part \"train\" or \"test\" is a half of it."));
  t.push_back(maker<Dataset>(
      "idx",
      [](std::string x, std::string y) { return paired("idx", datasets::images(x), datasets::labels(y)); },
      {{"images"}, {"labels"}}, "Images and labels of two IDX files, plain or gzipped."));
  t.push_back(maker<Dataset>(
      "csv",
      [](std::string path, std::string label, std::vector<std::string> columns, bool header,
         std::string separator, std::vector<std::string> classes, std::string missing, double fill,
         DType dtype) {
        if (separator.size() != 1) refuse("csv", "separator", "one byte", separator);
        CsvOptions options;
        options.separator = separator[0];
        options.header = header;
        options.columns = std::move(columns);
        options.label = std::move(label);
        options.classes = std::move(classes);
        options.missing = missing_of(missing);
        options.fill = fill;
        options.dtype = dtype;
        return read_csv(path, std::move(options)).dataset();
      },
      {{"path"},
       {"label"},
       with("columns", std::vector<std::string>()),
       with("header", true),
       with("separator", std::string(",")),
       with("classes", std::vector<std::string>()),
       with("missing", std::string("refuse")),
       with("fill", CsvOptions().fill),
       with("dtype", float32)},
      "A table of numbers in a text file; label is the column to be learned, by name or number."));
  t.push_back(maker<Dataset>(
      "npy", [](std::string x, std::string y) { return paired("npy", read_npy(x), read_npy(y)); },
      {{"x"}, {"y"}}, "Samples and labels of two NPY files."));
  t.push_back(maker<Dataset>(
      "text",
      [](std::string path, int64_t context, int64_t step) {
        return windows(read_text(path).ids, context, step);
      },
      {{"path"}, {"context"}, with("step", int64_t{0})},
      "Windows of characters of a text file, and the characters that follow each."));
  return t;
}

}  // namespace

std::span<const Maker<Dataset>> sets() {
  static const Table all = make_table();
  return all;
}

}  // namespace troupe::datasets
