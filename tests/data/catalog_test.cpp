// Data sets by name.
#include "core/tensor/creation.h"
#include "data/datasets/set_catalog.h"

#include <catch2/catch.hpp>
#include <set>

#include "data/datasets/csv.h"
#include "data/datasets/digits.h"
#include "data/datasets/idx.h"
#include "data/datasets/text.h"
#include "data/formats/npy.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;
using testing::Folder;

namespace {

const Maker<datasets::Dataset>& set(const std::string& name) {
  for (const auto& s : datasets::sets())
    if (s.name == name) return s;
  FAIL("no set " << name);
  std::abort();
}
bool same(const datasets::Dataset& a, const datasets::Dataset& b) {
  return bit_equal(a.x, b.x) && bit_equal(a.y, b.y);
}
// An IDX file of bytes.
std::string idx(const std::vector<uint8_t>& sizes, const std::string& bytes) {
  std::string out{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const uint8_t size : sizes) out += std::string(3, '\0') + static_cast<char>(size);
  return out + bytes;
}

}  // namespace

TEST_CASE("the sets that files hold are read by name") {
  const Folder dir;
  const std::string table = dir.file("a.csv", "width;kind;height\n1;cat;2\n3;dog;4\n");
  const auto csv = set("csv")({table, std::string("kind")},
                              {{"separator", std::string(";")},
                               {"classes", ValueList{std::string("cat"), std::string("dog")}},
                               {"dtype", std::string("float64")}});
  CHECK(csv.x.to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  CHECK(csv.x.dtype() == float64);
  CHECK(csv.y.to_vector<int64_t>() == std::vector<int64_t>{0, 1});

  const std::string x = (dir.path / "x.npy").string(), y = (dir.path / "y.npy").string();
  datasets::write_npy(x, zeros({3, 2}));
  datasets::write_npy(y, tensor({0, 1, 2}));
  CHECK(set("npy")({x, y}).size() == 3);

  const std::string images = dir.file("images", idx({2, 1, 3}, "abcdef")),
                    labels = dir.file("labels", idx({2}, std::string("\x01\x02")));
  CHECK(set("idx")({images, labels}).x.shape() == Shape{2, 3});

  const std::string text = dir.file("a.txt", "hello world");
  const auto windows = set("text")({text, int64_t{4}}, {{"step", int64_t{2}}});
  CHECK(same(windows, datasets::windows(datasets::read_text(text).ids, 4, 2)));

  for (const char* name : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"})
    dir.file(name, idx({2, 1, 3}, "abcdef"));
  for (const char* name : {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"})
    dir.file(name, idx({2}, std::string("\x01\x02")));
  for (const char* part : {"all", "train", "test"})
    CHECK(set("mnist")({dir.path.string(), std::string(part)}).size() == 2);
}

TEST_CASE("digits are drawn by name, and every set has a line of text") {
  CHECK(same(set("digits")({int64_t{20}, int64_t{3}}), datasets::generated_digits(20, 3)));
  std::set<std::string> names;
  for (const auto& s : datasets::sets()) {
    INFO(s.signature());
    CHECK(names.insert(s.name).second);
    CHECK((!s.text.empty() && s.text.back() == '.'));
  }
  CHECK(names == std::set<std::string>{"digits", "mnist", "idx", "csv", "npy", "text"});
}

TEST_CASE("arguments of data sets that do not fit are refused") {
  const Folder dir;
  const auto said = [](auto f) { return error_of(f).message(); };
  CHECK_THAT(said([] { set("digits")({int64_t{0}}); }), Contains("expected at least 1"));
  CHECK_THAT(said([] { set("csv")({}); }), Contains("csv needs \"path\": csv(path: string, label: string"));
  CHECK_THAT(said([&] {
               set("mnist")({dir.path.string(), std::string("half")});
             }),
             Contains("part must be \"all\", \"train\" or \"test\", got \"half\""));
  CHECK_THAT(said([&] {
               set("csv")({dir.path.string(), std::string("y")}, {{"separator", std::string(",,")}});
             }),
             Contains("separator must be one byte"));
  CHECK_THAT(said([&] {
               set("csv")({dir.path.string(), std::string("y")}, {{"missing", std::string("no")}});
             }),
             Contains("missing must be"));
  const std::string x = (dir.path / "x.npy").string();
  datasets::write_npy(x, zeros({3, 2}));
  const std::string y = (dir.path / "y.npy").string();
  datasets::write_npy(y, zeros({2}));
  CHECK_THAT(said([&] { set("npy")({x, y}); }), Contains("as many rows as each other"));
}
