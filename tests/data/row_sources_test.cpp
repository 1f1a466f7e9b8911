// Rows of CSV, NPY and safetensors files as samples, packed or not.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "core/tensor/creation.h"
#include "data/datasets/csv.h"
#include "data/datasets/idx.h"
#include "data/formats/npy.h"
#include "data/formats/safetensors.h"
#include "data/streams/array_rows.h"
#include "data/streams/csv_rows.h"
#include "data/streams/feed.h"
#include "tests/data/packed.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using testing::Folder;
using testing::gzip_of;
using testing::invalid_text;
using testing::zstd_of;

namespace {

template <class T>
T get(const Sample& sample, const std::string& field) {
  REQUIRE(sample.contains(field));
  const T* value = sample.at(field).get_if<T>();
  REQUIRE(value);
  return *value;
}

std::string table(int64_t rows) {
  std::string out = "n,score,\"the, name\",empty\n";
  for (int64_t i = 0; i < rows; ++i)
    out += std::to_string(i) + (i % 3 ? ",0.5," : ",,") + "\"line\n" + std::to_string(i) +
           " \"\"x\"\"\",\r\n" + (i % 5 ? "" : "\r\n");
  return out;
}

}  // namespace

TEST_CASE("rows of CSV files are samples with the types of their columns, packed or not", "[data]") {
  const Folder folder;
  const std::string text = table(100);
  const std::string plain = folder.file("a.csv", text), gz = folder.file("b.csv.gz", gzip_of(text));
  std::vector<std::string> files{plain, gz};
#ifdef TROUPE_ARCHIVE
  files.push_back(folder.file("c.csv.zst", zstd_of(text)));
  CHECK(csv_rows({folder.path.string()})->size() == 300);
#endif
  for (const std::string& path : files) {
    const auto rows = csv_rows({path});
    REQUIRE(rows->size() == 100);
    for (const int64_t i : {99, 0, 1, 7, 8, 9, 63, 64}) {
      const Sample sample = rows->read(i);
      CHECK(get<int64_t>(sample, "n") == i);
      CHECK(std::isnan(get<double>(sample, "score")) == (i % 3 == 0));
      CHECK(get<std::string>(sample, "the, name") == "line\n" + std::to_string(i) + " \"x\"");
      CHECK(get<std::string>(sample, "empty").empty());
    }
  }
  const auto chosen = csv_rows({plain}, {.columns = {"n"}, .types = {{"n", "text"}}});
  CHECK(chosen->read(5).size() == 1);
  CHECK(get<std::string>(chosen->read(5), "n") == "5");
  const std::string bare = folder.file("bare.txt", "1;2.5\r3;4\r");
  const auto named = csv_rows({bare}, {.separator = ';', .header = false});
  REQUIRE(named->size() == 2);
  CHECK((get<int64_t>(named->read(1), "0") == 3 && get<double>(named->read(0), "1") == 2.5));
  // A type holds for all files: one of them has a number that is not whole.
  const auto both = csv_rows({folder.file("w.csv", "v\n1\n"), folder.file("f.csv", "v\n1.5\n")});
  CHECK((get<double>(both->read(0), "v") == 1 && get<double>(both->read(1), "v") == 1.5));
}

TEST_CASE("rows of CSV files that are wrong are named by file and line, and counted", "[data]") {
  const Folder folder;
  const std::string path = folder.file("a.csv", "n,m\n1,2\n3\n4,5\n6,\"7\"x\n8,9\n10,11\n12,\"cut o");
  const auto rows = csv_rows({path});
  REQUIRE(rows->size() == 7);
  CHECK_THAT(
      invalid_text([&] { rows->read(1); }),
      Contains("a.csv:3: 1 fields, expected 2 as in the first record; the first is \"3\": was the file cut"));
  CHECK_THAT(invalid_text([&] { rows->read(3); }),
             Contains("a.csv:5: text after the closing quote of field 2"));
  CHECK_THAT(invalid_text([&] { rows->read(6); }),
             Contains("a.csv:8: a quote is opened in field 2 and never closed"));
  CHECK(get<int64_t>(rows->read(4), "n") == 8);
  Feed feed(Pipeline(rows).batch(10).skip_broken());
  CHECK(feed.next()->tensor("n").to_vector<int64_t>() == std::vector<int64_t>{1, 4, 8, 10});
  CHECK(feed.report().broken == 3);

  const auto typed = csv_rows({path}, {.types = {{"m", "int64"}}});
  CHECK(get<int64_t>(typed->read(0), "m") == 2);
  const std::string wrong = folder.file("w.csv", "n\n1\nx\n");
  const auto strict = csv_rows({wrong}, {.types = {{"n", "float64"}}});
  CHECK_THAT(invalid_text([&] { strict->read(1); }),
             Contains("w.csv:3: column 1 (n): \"x\" is no finite number"));
  CHECK_THAT(invalid_text([&] { csv_rows({wrong}, {.columns = {"m"}}); }),
             Contains("no column \"m\"; it has n"));
  CHECK_THAT(invalid_text([&] { csv_rows({wrong}, {.types = {{"n", "int"}}}); }),
             Contains("is to be \"int\", expected int64, float64 or text"));
  CHECK_THAT(invalid_text([&] { csv_rows({path, wrong}); }),
             Contains("w.csv: has the columns n, and the first file n, m"));
  CHECK_THAT(invalid_text([&] { csv_rows({folder.file("d.csv", "a,a\n1,2\n")}); }),
             Contains("two columns are called \"a\""));
  CHECK_THAT(invalid_text([&] { csv_rows({folder.file("e.csv", "")}); }), Contains("e.csv: is empty"));
  CHECK_THAT(invalid_text([&] { csv_rows({folder.file("h.csv", "a,b\n")}); }),
             Contains("h.csv: has no rows"));
  CHECK_THAT(invalid_text([&] { csv_rows({}); }), Contains("no file was given"));
  CHECK_THAT(invalid_text([&] { csv_rows({(folder.path / "none").string()}); }), Contains("none"));
}

TEST_CASE(
    "a CSV record of as many bytes as are allowed is read, and one that is longer takes no other with it",
    "[data]") {
  const Folder folder;
  const auto rows = csv_rows({folder.file("a.csv", "a,b\n1,2\r\n1,23\n3,4\n\n5,6\n")}, {.max_record = 3});
  REQUIRE(rows->size() == 4);
  CHECK(get<int64_t>(rows->read(0), "b") == 2);
  CHECK_THAT(invalid_text([&] { rows->read(1); }), Contains("a.csv:3: a record of more than 3 bytes"));
  CHECK((get<int64_t>(rows->read(2), "a") == 3 && get<int64_t>(rows->read(3), "a") == 5));
}

TEST_CASE("a CSV column whose whole numbers float64 would change is text", "[data]") {
  const Folder folder;
  const auto first = [&](const std::string& rows, const CsvRowOptions& options = {}) {
    return csv_rows({folder.file("a.csv", "n,m\n" + rows)}, options)->read(0);
  };
  for (const std::string id : {"9007199254740993", "-09007199254740993", "18446744073709551615"}) {
    CHECK(get<std::string>(first(id + ",1\n,2\n"), "n") == id);
    CHECK(get<std::string>(first(id + ",1\n1.5,2\n"), "n") == id);
  }
  CHECK(get<std::string>(first("9223372036854775807,1\n9223372036854775809,2\n"), "n") ==
        "9223372036854775807");
  CHECK(get<int64_t>(first("9007199254740993,1\n"), "n") == 9007199254740993);
  CHECK(get<double>(first("9007199254740992,1\n,2\n"), "n") == 9007199254740992.0);
  CHECK(get<double>(first("9007199254740992000,1\n1e300,2\n"), "n") == 9007199254740992000.0);
  CHECK(get<double>(first("0.12345678901234567890,1\n"), "n") == 0.12345678901234567890);
  CHECK(get<double>(first("9007199254740993,1\n", {.types = {{"n", "float64"}}}), "n") == 9007199254740992.0);
}

TEST_CASE("a line that is no JSON is named by file and line", "[data]") {
  const Folder folder;
  const auto lines = json_lines({folder.file("b.jsonl", "{\"n\": 1}\n{\n")});
  CHECK_THAT(invalid_text([&] { lines->read(1); }), Contains("b.jsonl, line 2: it is no JSON at"));
}

TEST_CASE("zstd data may begin with a frame to be skipped, and look back 128 MiB at most", "[data]") {
  using testing::little;
  const Folder folder;
  const std::string text = table(20);
  for (const uint64_t magic : {0x184d2a50, 0x184d2a5f}) {
    const std::string path =
        folder.file("a.csv.zst", little(magic, 4) + little(3, 4) + "abc" + zstd_of(text));
#ifdef TROUPE_ARCHIVE
    CHECK(csv_rows({path})->size() == 20);
#else
    CHECK_THAT(testing::error_text(ErrorKind::unimplemented, [&] { csv_rows({path}); }),
               Contains("this build has no libarchive"));
#endif
  }
#ifdef TROUPE_ARCHIVE
  // A frame with a window of 2^31 bytes, as --long=31 makes it.
  const std::string path = folder.file("b.csv.zst", little(0xfd2fb528, 4) + std::string("\0\xa8", 2) +
                                                        little(uint64_t{4} << 3 | 1, 3) + "n\n1\n");
  CHECK_THAT(
      testing::error_text(ErrorKind::unimplemented, [&] { csv_rows({path}); }),
      Contains("b.csv.zst: its zstd data look back further than the 128 MiB") && Contains("--long=31"));
#endif
}

TEST_CASE("packed files that are cut short or broken are refused with file and byte", "[data]") {
  const Folder folder;
  const std::string text = table(1000);
  const auto refused = [&](const std::string& name, const std::string& content) {
    const std::string path = folder.file(name, content);
    return invalid_text([&] { csv_rows({path}); });
  };
  const std::string gz = gzip_of(text);
  CHECK_THAT(refused("a.csv.gz", gz.substr(0, gz.size() / 2)),
             Contains("a.csv.gz: gzip data cut short at byte " + std::to_string(gz.size() / 2)));
  std::string flipped = gz;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  CHECK_THAT(refused("b.csv.gz", flipped), Contains("b.csv.gz: broken gzip data near byte"));
#ifdef TROUPE_ARCHIVE
  const std::string zst = zstd_of(text);
  CHECK_THAT(
      refused("c.csv.zst", zst.substr(0, zst.size() / 2)),
      Contains("c.csv.zst: broken zstd data, or cut short, near byte " + std::to_string(zst.size() / 2)));
  CHECK(read_csv(folder.file("d.csv", zstd_of("a,b\n1,2\n"))).rows() == 1);
  CHECK(read_idx(folder.file("x", zstd_of(std::string("\0\0\x8\x1\0\0\0\x2", 8) + "ab"))).values.size() == 2);
#else
  CHECK_THAT(
      testing::error_text(ErrorKind::unimplemented, [&] { csv_rows({folder.file("c.zst", zstd_of(text))}); }),
      Contains(
          "c.zst: this build has no libarchive, which reads tar and zstd: install Debian's libarchive-dev"));
#endif
  const auto lines = json_lines({folder.file("l.jsonl.gz", gzip_of("{\"n\": 1}\n{\"n\": 2}\n"))});
  CHECK((lines->size() == 2 && get<int64_t>(lines->read(1), "n") == 2));
  // Where it is unpacked is said, if that does not go.
  const std::string good = folder.file("e.csv.gz", gz);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", (folder.path / "a.csv.gz").c_str(), 1);
  CHECK_THAT(testing::error_text(ErrorKind::failed, [&] { csv_rows({good}); }),
             Contains("e.csv.gz: is unpacked into") && Contains("name a folder with more room in TMPDIR"));
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_CASE("rows of NPY files are read one by one", "[data]") {
  const Folder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  write_npy(at("a.npy"), arange(12).to(float32).reshape({3, 2, 2}));
  write_npy(at("b.npy"), arange(12, 20).to(float32).reshape({2, 2, 2}));
  for (const auto& rows : {npy_rows({at("a.npy"), at("b.npy")}), npy_rows({folder.path.string()})}) {
    REQUIRE(rows->size() == 5);
    const auto row = get<Tensor>(rows->read(3), "x");
    CHECK(row.shape() == Shape{2, 2});
    CHECK(row.to_vector<float>() == std::vector<float>{12, 13, 14, 15});
  }
  write_npy(at("y"), tensor({5, 6, 7, 8, 9}, int64));
  const auto pairs = side_by_side({npy_rows({folder.path.string()}), npy_rows({at("y")}, "y")});
  Feed feed(Pipeline(pairs).shuffle({.seed = 1, .block = 1}).batch(5));
  const auto batch = feed.next();
  CHECK((batch->tensor("x").shape() == Shape{5, 2, 2} && batch->tensor("y").shape() == Shape{5}));
  for (int64_t i = 0; i < 5; ++i)
    CHECK(batch->tensor("x").to_vector<float>()[static_cast<size_t>(i) * 4] ==
          float(batch->tensor("y").to_vector<int64_t>()[static_cast<size_t>(i)] - 5) * 4);
  CHECK_THAT(invalid_text([&] { side_by_side({npy_rows({at("a.npy")}), npy_rows({at("y")}, "y")}); }),
             Contains("have 3 and 5 samples"));
  CHECK_THAT(invalid_text([&] { side_by_side({pairs, pairs})->read(0); }), Contains("have the field \"x\""));

  write_npy(at("c.npy"), zeros({2, 3}));
  CHECK_THAT(
      invalid_text([&] { npy_rows({folder.path.string()}); }),
      Contains("c.npy: its rows are float32 [3], and those of") && Contains("a.npy are float32 [2, 2]"));
  write_npy(at("d.npy"), zeros({0, 3}));
  CHECK_THAT(invalid_text([&] { npy_rows({at("d.npy")}); }), Contains("d.npy: there is no row in it"));
  const std::string whole = testing::content(folder.path / "c.npy");
  CHECK_THAT(invalid_text([&] { npy_rows({folder.file("cut.npy", whole.substr(0, whole.size() - 1))}); }),
             Contains("cut.npy: has 23 bytes after its header, expected the 24"));
  std::string columns = whole;
  columns.replace(columns.find("False"), 5, "True ");
  CHECK_THAT(invalid_text([&] { npy_rows({folder.file("f.npy", columns)}); }), Contains("Fortran's order"));
  CHECK_THAT(invalid_text(
                 [&] { npy_rows({folder.file("s.npy", testing::content(folder.path / "c.npy")), at("y")}); }),
             Contains("its rows are int64 []"));
  CHECK_THAT(invalid_text([&] { npy_rows({}); }), Contains("no file was given"));
  const Folder none;
  CHECK_THAT(invalid_text([&] { npy_rows({none.path.string()}); }),
             Contains("has no file that ends with .npy"));
}

TEST_CASE("rows of safetensors files have a field for each tensor", "[data]") {
  const Folder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  write_safetensors(at("a.safetensors"), {{"x", arange(6).reshape({3, 2})}, {"y", tensor({7, 8, 9}, int64)}});
  write_safetensors(at("b.safetensors"), {{"x", full({1, 2}, 5)}, {"y", tensor({10}, int64)}});
  const auto rows = safetensors_rows({folder.path.string()});
  REQUIRE(rows->size() == 4);
  CHECK(get<Tensor>(rows->read(2), "x").to_vector<float>() == std::vector<float>{4, 5});
  CHECK(get<Tensor>(rows->read(2), "y").item<int64_t>() == 9);
  CHECK(get<Tensor>(rows->read(3), "y").item<int64_t>() == 10);
  write_safetensors(at("c.safetensors"), {{"x", zeros({3, 2})}, {"y", zeros({2})}});
  CHECK_THAT(invalid_text([&] { safetensors_rows({at("c.safetensors")}); }),
             Contains("tensor \"x\" has 3 rows, and \"y\" has 2"));
  write_safetensors(at("d.safetensors"), {{"x", zeros({3, 3})}, {"y", zeros({3})}});
  CHECK_THAT(invalid_text([&] { safetensors_rows({at("a.safetensors"), at("d.safetensors")}); }),
             Contains("its rows are x F32 [3], y F32 [], and those of"));
  write_safetensors(at("e.safetensors"), {{"x", zeros({})}});
  CHECK_THAT(invalid_text([&] { safetensors_rows({at("e.safetensors")}); }), Contains("has no dimension"));
  const std::string whole = testing::content(folder.path / "a.safetensors");
  CHECK_THAT(invalid_text([&] { safetensors_rows({folder.file("cut", whole.substr(0, whole.size() - 1))}); }),
             Contains("cut"));
}

TEST_CASE("files go together whose rows are read as one type, however it is spelt", "[data]") {
  const Folder folder;
  const auto respelt = [&](const std::string& path, const std::string& from, const std::string& to) {
    std::string text = testing::content(path);
    text.replace(text.find(from), from.size(), to);
    return folder.file(std::filesystem::path(path).filename(), text);
  };
  const auto npy = [&](const char* name, const Tensor& t, const std::string& from, const std::string& to) {
    const std::string path = (folder.path / name).string();
    write_npy(path, t);
    return respelt(path, from, to);
  };
  const Tensor f = ones({2, 3});
  CHECK(
      npy_rows({npy("a", f, "'<f4'", "'<f4'"), npy("b", f, "'<f4'", "'f4' "), npy("c", f, "'<f4'", "'>f4'")})
          ->size() == 6);
  CHECK(npy_rows({npy("d", zeros({2}, uint8), "|u1", "|i1"), npy("e", zeros({2}, float16), "<f2", "<i2"),
                  npy("f", zeros({2}, int64), "<i8", "<i8")})
            ->size() == 6);
  const auto safetensors = [&](const char* name, DType dtype, const std::string& from,
                               const std::string& to) {
    const std::string path = (folder.path / name).string();
    write_safetensors(path, {{"x", zeros({2}, dtype)}});
    return respelt(path, from, to);
  };
  CHECK(safetensors_rows({safetensors("g", uint8, "\"U8\"", "\"I8\""),
                          safetensors("h", float16, "\"F16\"", "\"I16\""),
                          safetensors("i", int64, "\"I64\"", "\"I64\"")})
            ->size() == 6);
}

TEST_CASE("files with more rows than can be counted are refused", "[data]") {
  const Folder folder;
  const std::string header =
      "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000000, 0), }\n";
  const std::string path =
      folder.file("a.npy", std::string("\x93NUMPY\1\0", 8) + testing::little(header.size(), 2) + header);
  CHECK(npy_rows(std::vector<std::string>(9, path))->size() == 9 * int64_t{1000000000000000000});
  CHECK_THAT(invalid_text([&] { npy_rows(std::vector<std::string>(10, path)); }),
             Contains("more rows together than can be counted"));
  const auto many = npy_rows(std::vector<std::string>(9, path));
  CHECK_THAT(invalid_text([&] { mixed({{many}, {many}}); }), Contains("more samples than can be counted"));
  CHECK(mixed({{many}, {many}}, 10)->size() == 10);
}

TEST_CASE("rows of a safetensors file that is replaced again and again are those of its header", "[data]") {
  const Folder folder;
  const auto at = [&](const std::string& name) { return (folder.path / name).string(); };
  write_safetensors(at("short"), {{"x", ones({4})}});
  write_safetensors(at("long"), {{"x", ones({4})}, {"y", zeros({4, 4})}}, {{"text", std::string(500, '3')}});
  const auto replace_by = [&](const char* name) {
    std::filesystem::create_symlink(at(name), at("next"));
    std::filesystem::rename(at("next"), at("now"));
  };
  replace_by("short");
  const std::jthread replaces([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) replace_by("long"), replace_by("short");
  });
  for (int i = 0; i < 500; ++i)
    REQUIRE(get<Tensor>(safetensors_rows({at("now")})->read(3), "x").item<float>() == 1);
}
