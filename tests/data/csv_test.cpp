// CSV: what RFC 4180 allows is read, what is wrong is named by file, line, column and text.
#include "data/datasets/csv.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/generator.h"
#include "data/datasets/loader.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using datasets::CsvOptions;
using datasets::Missing;
using troupe::testing::Folder;
using troupe::testing::invalid_text;

namespace {

void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}
std::vector<std::vector<std::string>> records(const std::string& path, char separator = ',') {
  datasets::CsvRecords file(path, separator, 1 << 20);
  std::vector<std::vector<std::string>> all;
  for (std::vector<std::string> fields; file.next(fields);) all.push_back(fields);
  return all;
}
using Floats = std::vector<float>;
using Records = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE("a table gives its columns by name, and its labels", "[data][csv]") {
  Folder dir;
  const std::string path =
      dir.file("a.csv", "width, height ,kind,weight\n1,2.5,cat,-3e2\n 4 ,+5,dog,.5\n7,8,cat,9\n");
  datasets::CsvTable t = datasets::read_csv(path, {.columns = {"weight", "width"}});
  CHECK(t.names == std::vector<std::string>{"weight", "width"});
  CHECK(t.values.summary() == "float32 [3, 2]");
  CHECK(t.values.to_vector<float>() == Floats{-300, 1, .5f, 4, 9, 7});
  CHECK(!t.labels.defined());

  CsvOptions options{.label = "kind"};
  options.classes = datasets::csv_classes(path, options);
  CHECK(options.classes == std::vector<std::string>{"cat", "dog"});
  t = datasets::read_csv(path, options);
  CHECK(t.names == std::vector<std::string>{"width", "height", "weight"});
  CHECK(t.labels.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 0});
  CHECK(datasets::Loader(t.dataset(), {.batch_size = 2}).batches() == 2);

  const std::string bare = dir.file("b.csv", "1;0\n2;1\n");
  t = datasets::read_csv(bare, {.separator = ';', .header = false, .label = "1", .dtype = float64});
  CHECK(t.values.summary() == "float64 [2, 1]");
  CHECK(t.labels.to_vector<int64_t>() == std::vector<int64_t>{0, 1});
  CHECK(datasets::read_csv(dir.file("c", "id\n9223372036854775807\n"), {.dtype = int64})
            .values.to_vector<int64_t>()[0] == INT64_MAX);
  CHECK(datasets::read_csv(dir.file("d", "a,b\n")).values.summary() == "float32 [0, 2]");
}

TEST_CASE("quotes, line ends and separators are those of RFC 4180", "[data][csv]") {
  Folder dir;
  CHECK(records(dir.file("a",
                         "\xEF\xBB\xBF"
                         "a,\"b,\"\"c\"\"\r\nd\",\r\n\n\r\n\"\",e")) ==
        Records{{"a", "b,\"c\"\r\nd", ""}, {"", "e"}});
  CHECK(records(dir.file("b", "x\ty\n\t"), '\t') == Records{{"x", "y"}, {"", ""}});
  CHECK(records(dir.file("c", "\"\"")) == Records{{""}});
  CHECK(records(dir.file("d", "\"a\rb\"\n")) == Records{{"a\rb"}});
  CHECK(records(dir.file("e", "")).empty());
  const std::string large(100'000, 'x');  // over the end of the buffer
  CHECK(records(dir.file("f", large + ",\"" + large + "\"\r\n1,2")) == Records{{large, large}, {"1", "2"}});
}

TEST_CASE("lines may all end with CR alone, and one among others is refused", "[data][csv]") {
  Folder dir;
  const datasets::CsvTable t = datasets::read_csv(dir.file("a", "a,b\r1,2\r\r3,4"));
  CHECK(t.names == std::vector<std::string>{"a", "b"});
  CHECK(t.values.to_vector<float>() == Floats{1, 2, 3, 4});
  CHECK(records(dir.file("b", "\xEF\xBB\xBF\"x\ry\n\",\r2,\r")) == Records{{"x\ry\n", ""}, {"2", ""}});
  CHECK(records(dir.file("c", "a\n\"1\r\"\r\n2")) == Records{{"a"}, {"1\r"}, {"2"}});
  // A CR at the end of the buffer, and an LF that begins the next one.
  const std::string fill((1 << 16) - 1, 'x');
  CHECK(records(dir.file("d", fill + "\r\n1")) == Records{{fill}, {"1"}});
  CHECK(records(dir.file("e", fill + "\r1\r2")) == Records{{fill}, {"1"}, {"2"}});
  const auto text = [&](const std::string& bytes) {
    const std::string said = invalid_text([&] { datasets::read_csv(dir.file("f.csv", bytes)); });
    INFO(said);
    CHECK(std::none_of(said.begin(), said.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }));
    return said;
  };
  has(text("a,b\n1,2\r3,4\n"),
      "f.csv:2: a CR without LF outside of quotes, and the lines before it end with LF");
  has(text("a,b\r1,2\n3,4\n"), "f.csv:2: a line that ends with LF, and those before it end with CR alone");
  has(text("a,b\r1,2\r3,x\r"), "f.csv:3: column 2 (b): \"x\" is no finite number");
  has(text("a,b\r\r\n1,2\r\r\n"), "f.csv:2: a line that ends with LF");
  has(text("a,\"b\r\"\r1,\"2\r\n\x1b[2J\"\r"), ":3: column 2 (b\\r): \"2\\r\\n\\x1b[2J\" is no finite");
  has(text("a,a\x7f\n1,x\n"), "column 2 (a\\x7f): \"x\"");
}

TEST_CASE("what is no text is called by its name", "[data][csv]") {
  Folder dir;
  const auto text = [&](const std::string& bytes) {
    return invalid_text([&] { datasets::read_csv(dir.file("f.csv", bytes)); });
  };
  has(text("\x1f\x8b\x08 and more"), "f.csv: broken gzip data near byte 4, after 0 inflated bytes");
  has(text("PK\3\4 and more"), "it is a ZIP archive");
  has(text(std::string("\xff\xfe"
                       "a\0,\0",
                       6)),
      "it is text in UTF-16: save it as UTF-8");
  has(text("\x93NUMPY\1"), "it is an NPY file: read_npy() reads it");
}

TEST_CASE("missing fields are refused, filled or their rows left out", "[data][csv]") {
  Folder dir;
  const std::string path = dir.file("a.csv", "a,b,y\n1,,0\nNA,4,1\n5,6,\n7,8,2\n");
  CsvOptions options{.label = "y", .missing_texts = {"", "NA"}};
  has(invalid_text([&] { datasets::read_csv(path, options); }),
      "a.csv:2: column 2 (b): the value is missing (\"\")");
  options.missing = Missing::skip_row;
  datasets::CsvTable t = datasets::read_csv(path, options);
  CHECK(t.values.to_vector<float>() == Floats{7, 8});
  CHECK(t.labels.to_vector<int64_t>() == std::vector<int64_t>{2});
  options.missing = Missing::fill;
  has(invalid_text([&] { datasets::read_csv(path, options); }),
      "a.csv:4: column 3 (y): the label is missing");
  options.label = "";
  options.columns = {"a", "b"};
  t = datasets::read_csv(path, options);
  CHECK(std::isnan(t.values.to_vector<float>()[1]));
  options.fill = -1;
  CHECK(datasets::read_csv(path, options).values.to_vector<float>() == Floats{1, -1, -1, 4, 5, 6, 7, 8});
}

TEST_CASE("a reader gives a file in parts", "[data][csv]") {
  Folder dir;
  std::string text = "x,y\n";
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + "," + std::to_string(i % 3) + "\n";
  datasets::CsvReader reader(dir.file("f", text), {.label = "y"});
  std::vector<float> all;
  std::vector<int64_t> sizes;
  for (datasets::CsvTable t = reader.read(300); t.rows() > 0; t = reader.read(300)) {
    sizes.push_back(t.rows());
    for (float v : t.values.to_vector<float>()) all.push_back(v);
  }
  CHECK(sizes == std::vector<int64_t>{300, 300, 300, 100});
  REQUIRE(all.size() == 1000);
  CHECK(all[999] == 999);
}

TEST_CASE("errors name file, line, column and text", "[data][csv]") {
  Folder dir;
  auto text = [&](const std::string& bytes, const CsvOptions& options = {}) {
    return invalid_text([&] { datasets::read_csv(dir.file("f.csv", bytes), options); });
  };
  has(text("a,b\n1,2\n3,x4\n"),
      "[csv] " + (dir.path / "f.csv").string() + ":3: column 2 (b): \"x4\" is no finite number");
  has(text("a\n\"1\n\"\n"), ":2: column 1 (a): \"1\\n\"");
  has(text("a\n1 2\n"), "\"1 2\" is no");
  has(text("a\n1e99\n"), "\"1e99\" is no finite number that fits float32");
  has(text("a\n1e999\n", {.dtype = float64}), "fits float64");
  has(text("a\ninf\n"), "\"inf\"");
  has(text("a\n+-1\n"), "\"+-1\"");
  CHECK(text("a\n1e-60\n") == "no error");
  CHECK(text("a\n1e-999\n") == "no error");
  has(text("a\n1.5\n", {.dtype = int64}), "\"1.5\" is no whole number that fits int64");
  has(text("a\n9223372036854775808\n", {.dtype = int64}), "fits int64");
  has(text("a,b\n1\n"), ":2: 1 fields, expected 2 as in the first record");
  has(text("a,b\n1,2\n\n1,2,3\n"), ":4: 3 fields");
  has(text("a\n1\"2\n"), ":2: a quote inside the unquoted field 1 (\"1\")");
  has(text("a\n\"1\"2\n"), ":2: text after the closing quote of field 1");
  has(text("a\n1\n\"2\n3\n"), ":3: a quote is opened in field 1 and never closed");
  has(text(std::string("a\n1\0\n", 5)), ":2: a zero byte in field 1");
  has(text(""), "is empty");
  has(text("a\n" + std::string(100, '1') + "\n", {.max_record = 50}), ":2: a record of more than 50 bytes");
  has(text("height,b\n", {.columns = {"heigth"}}), "no column \"heigth\", did you mean \"height\"?");
  has(text("a,a\n1,2\n", {.columns = {"a"}}), "columns 1 and 2 are both called \"a\"");
  has(text("a,b,\"a \"\n1,2,3\n"), "columns 1 and 3 are both called \"a\"");
  has(text("a,b,b\n1,2,3\n", {.label = "a"}), "columns 2 and 3 are both called \"b\"");
  CHECK(text("a,b,b\n1,2,3\n", {.columns = {"a"}}) == "no error");
  has(text("a,b\n1,2\n", {.columns = {"a", "b", "a"}}), "CsvOptions::columns names \"a\" twice");
  has(text("a,y\n1,cat\n", {.label = "y"}), "the label \"cat\" is no whole number from 0; for texts, set");
  has(text("a,y\n1,-1\n", {.label = "y"}), "the label \"-1\"");
  has(text("a,y\n1,cow\n", {.label = "y", .classes = {"cat", "dog"}}),
      "unknown label \"cow\", expected one of \"cat\", \"dog\"");
  has(text("a\n1\n", {.separator = '"'}), "cannot be the separator");
  has(text("a\n1\n", {.dtype = boolean}), "values of type bool");
  has(text("a\n1\n", {.missing = Missing::fill, .dtype = int64}), "expected a whole number");
  has(invalid_text([&] { datasets::read_csv(dir.path); }), "is a directory, expected a CSV file");
}

TEST_CASE("any bytes are read or refused", "[data][csv]") {
  Folder dir;
  Generator random(11);
  int refused = 0, read = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = "a,b\n";
    for (uint64_t k = 0, n = random.below(40); k < n; ++k)
      bytes += "0123,,\"\n\r1.e-x\xEF\xBB"[random.below(17)];
    try {
      datasets::read_csv(dir.file("f", bytes), {.missing = Missing::skip_row});
      ++read;
    } catch (const Error& e) {
      ++refused;
      CHECK(e.message().find("[csv] ") == 0);
    }
  }
  CHECK(refused > 100);
  CHECK(read > 20);
}
