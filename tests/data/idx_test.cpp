// IDX files: right ones, and every way in which one can be wrong.
#include "data/datasets/idx.h"

#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"

using namespace troupe;
namespace fs = std::filesystem;
using Octets = std::vector<uint8_t>;

namespace {

// A folder of its own per test, gone at the end.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-data-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const Octets& bytes) const {
    std::ofstream(path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return (path / name).string();
  }
};

Octets idx_bytes(const std::vector<uint32_t>& sizes, const Octets& values, uint8_t type = 8) {
  Octets out{0, 0, type, static_cast<uint8_t>(sizes.size())};
  for (uint32_t s : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(s >> shift));
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

Octets gzip(const Octets& in) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Octets out(deflateBound(&z, in.size()) + 64);
  z.next_in = const_cast<uint8_t*>(in.data());
  z.avail_in = static_cast<unsigned>(in.size());
  z.next_out = out.data();
  z.avail_out = static_cast<unsigned>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

Octets counting(size_t n, unsigned modulus = 256) {
  Octets v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<uint8_t>(i % modulus);
  return v;
}

// The text of the error that f throws, its kind checked; empty if it throws none.
template <class F>
std::string refusal(F&& f, ErrorKind kind = ErrorKind::invalid) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.message();
  }
  return {};
}
std::string idx_refusal(const std::string& path, ErrorKind kind = ErrorKind::invalid) {
  return refusal([&] { datasets::read_idx(path); }, kind);
}

void write_part(const Folder& dir, const std::string& part, uint32_t n, bool zipped, uint32_t side = 3) {
  const Octets x = idx_bytes({n, side, side}, counting(n * side * side)), y = idx_bytes({n}, counting(n, 10));
  dir.write(part + "-images-idx3-ubyte" + (zipped ? ".gz" : ""), zipped ? gzip(x) : x);
  dir.write(part + "-labels-idx1-ubyte" + (zipped ? ".gz" : ""), zipped ? gzip(y) : y);
}

}  // namespace

TEST_CASE("an IDX file gives its sizes and bytes, gzipped or not", "[data]") {
  Folder dir;
  const Octets values = counting(2 * 3 * 4), plain = idx_bytes({2, 3, 4}, values);
  // The content tells, not the name.
  for (const std::string& path : {dir.write("a.gz", plain), dir.write("b", gzip(plain))}) {
    const datasets::Idx idx = datasets::read_idx(path);
    CHECK(idx.shape == Shape{2, 3, 4});
    CHECK(idx.values == values);
  }
  CHECK(datasets::read_idx(dir.write("none", idx_bytes({0, 3}, {}))).values.empty());
  const Octets large = counting(3'000'000, 251);  // more than one block of growth
  CHECK(datasets::read_idx(dir.write("large", gzip(idx_bytes({3'000'000}, large)))).values == large);
}

TEST_CASE("images are rows in [0, 1] and labels are integers", "[data]") {
  Folder dir;
  const Tensor x = datasets::images(dir.write("x", idx_bytes({2, 1, 3}, {0, 51, 255, 102, 1, 2})));
  CHECK(x.summary() == "float32 [2, 3]");
  CHECK(x.to_vector<float>() == std::vector<float>{0, 51 / 255.0f, 1, 102 / 255.0f, 1 / 255.0f, 2 / 255.0f});
  const Tensor y = datasets::labels(dir.write("y", idx_bytes({3}, {7, 0, 255})));
  CHECK(y.summary() == "int64 [3]");
  CHECK(y.to_vector<int64_t>() == std::vector<int64_t>{7, 0, 255});
  CHECK(refusal([&] { datasets::labels((dir.path / "x").string()); }).find("[2, 1, 3], expected 1") !=
        std::string::npos);
  CHECK(refusal([&] { datasets::images((dir.path / "y").string()); }).find("[3], expected 3") !=
        std::string::npos);
}

TEST_CASE("a file cut at any byte is refused, and so is one that goes on", "[data]") {
  Folder dir;
  const Octets plain = idx_bytes({2, 3}, counting(6)), zipped = gzip(plain);
  for (const Octets& whole : {plain, zipped}) {
    CHECK(idx_refusal(dir.write("f", whole)).empty());
    for (size_t n = 0; n < whole.size(); ++n) {
      INFO("cut to " << n << " of " << whole.size() << " bytes");
      const std::string text =
          idx_refusal(dir.write("f", Octets(whole.begin(), whole.begin() + static_cast<long>(n))));
      CHECK(text.find("[idx] " + (dir.path / "f").string() + ": ") == 0);
    }
    Octets longer = whole;
    longer.push_back(0);
    CHECK(idx_refusal(dir.write("f", longer)).find("byte " + std::to_string(whole.size())) !=
          std::string::npos);
  }
  Octets more = plain;
  more.push_back(9);
  CHECK(idx_refusal(dir.write("f", gzip(more)))
            .find("goes on at byte 18, expected the end after the 18 bytes") != std::string::npos);
  CHECK(idx_refusal(dir.write("f", Octets(plain.begin(), plain.end() - 2)))
            .find("ends at byte 16, expected the 18 bytes declared by sizes [2, 3]") != std::string::npos);
}

TEST_CASE("a gzipped file of several members is read to the end of the last", "[data]") {
  Folder dir;
  // Members end wherever they will in the blocks of 64 KiB that are read: 30,000 do not compress.
  Octets values(100'000);
  uint32_t state = 1;
  for (auto& v : values) v = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  const Octets plain = idx_bytes({100'000}, values);
  for (const size_t piece :
       {size_t{1} << 12, size_t{30'000}, size_t{65'000}, size_t{65'513}, size_t{65'514}}) {
    Octets zipped = gzip({});  // an empty member is one, too
    for (size_t at = 0; at < plain.size(); at += piece) {
      const Octets member =
          gzip(Octets(plain.begin() + static_cast<long>(at),
                      plain.begin() + static_cast<long>(std::min(plain.size(), at + piece))));
      zipped.insert(zipped.end(), member.begin(), member.end());
    }
    CHECK(datasets::read_idx(dir.write("f", zipped)).values == values);
    Octets longer = zipped;
    longer.push_back(0x1f);
    CHECK(idx_refusal(dir.write("f", longer))
              .find("bytes after the end of the gzip data, at byte " + std::to_string(zipped.size())) !=
          std::string::npos);
    longer.push_back(0x8b);
    CHECK(idx_refusal(dir.write("f", longer)).find("cut short") != std::string::npos);
  }
}

TEST_CASE("a flipped byte in a gzipped file is refused or changes nothing", "[data]") {
  Folder dir;
  const Octets values = counting(60), zipped = gzip(idx_bytes({60}, values));
  int refused = 0;
  for (size_t i = 0; i < zipped.size(); ++i) {
    Octets broken = zipped;
    broken[i] ^= 0x55;
    try {
      const Octets got = datasets::read_idx(dir.write("f", broken)).values;
      CHECK(got == values);  // header fields that do not matter, as the time
    } catch (const Error& e) {
      ++refused;
      CHECK(e.message().find("[idx] ") == 0);
    }
  }
  CHECK(refused > 60);
}

TEST_CASE("wrong magic numbers, types and sizes are named", "[data]") {
  Folder dir;
  auto has = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(idx_refusal(dir.write("png", {0x89, 'P', 'N', 'G'})), "byte 0 is 0x89, expected 0x00");
  has(idx_refusal(dir.write("f", {0, 1, 8, 1})), "byte 1 is 0x01");
  has(idx_refusal(dir.write("f", idx_bytes({1}, {1}, 0x0D)), ErrorKind::unimplemented),
      "0x0D (float32) at byte 2");
  has(idx_refusal(dir.write("f", idx_bytes({1}, {1}, 0x0A))), "element type 0x0A at byte 2, expected 0x08");
  has(idx_refusal(dir.write("f", {0, 0, 8, 0})), "0 dimensions at byte 3, expected 1 to 8");
  has(idx_refusal(dir.write("f", {0, 0, 8, 200})), "200 dimensions at byte 3");
  has(idx_refusal(dir.write("f", {})), "is empty");
  has(idx_refusal(dir.path / "missing"), "missing: no such file");
  has(idx_refusal(dir.path), "is a directory");
  has(idx_refusal("/dev/null"), "not a regular file");
}

TEST_CASE("a header that declares too much is refused before anything is allocated", "[data]") {
  Folder dir;
  const uint32_t most = 0xFFFFFFFF;
  for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{most, most},
                                             {65536, 65537},
                                             {most, most, most, most, most, most, most, most},
                                             {most, most, 0}}) {
    CHECK(idx_refusal(dir.write("f", idx_bytes(sizes, {}))).find("declares more than 4 GiB") !=
          std::string::npos);
    CHECK(idx_refusal(dir.write("f", gzip(idx_bytes(sizes, {})))).find("4 GiB") != std::string::npos);
  }
  // Just allowed, but not there: costs no more than what came.
  CHECK(idx_refusal(dir.write("f", gzip(idx_bytes({65536, 65536}, {})))).find("ends at byte 12") !=
        std::string::npos);
  // A gzip bomb is left as soon as it has delivered one byte too many.
  CHECK(idx_refusal(dir.write("f", gzip(idx_bytes({10}, Octets(50'000'000))))).find("goes on at byte 18") !=
        std::string::npos);
}

TEST_CASE("MNIST is found in a folder, and split", "[data]") {
  Folder dir;
  write_part(dir, "t10k", 10, true);
  CHECK(datasets::mnist(dir.path).size() == 10);
  datasets::Split split = datasets::mnist_split(dir.path);
  CHECK(split.train.x.summary() == "float32 [8, 9]");
  CHECK(split.test.y.to_vector<int64_t>() == std::vector<int64_t>{8, 9});
  CHECK(split.test.x.data<float>()[0] == 72 / 255.0f);

  write_part(dir, "train", 30, false);
  CHECK(datasets::mnist(dir.path).size() == 30);
  split = datasets::mnist_split(dir.path);
  CHECK(split.train.size() == 30);
  CHECK(split.test.size() == 10);
}

TEST_CASE("an MNIST folder that does not fit together is refused", "[data]") {
  Folder dir;
  auto text = [&] { return refusal([&] { datasets::mnist_split(dir.path); }); };
  auto has = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal([&] { datasets::mnist("/no/where"); }), "--data /no/where: no such directory");
  has(refusal([&] { datasets::mnist(dir.write("file", {1})); }), "not a directory");
  has(text(), "no files found; looked for train-images-idx3-ubyte");
  dir.write("emnist-letters-train-images-idx3-ubyte.gz", {1});
  has(text(), "There is \"emnist-letters-train-images-idx3-ubyte.gz\": give its set these names, or read");
  dir.write("t10k-images-idx3-ubyte", idx_bytes({2, 1, 1}, {1, 2}));
  has(text(), "but no t10k-labels-idx1-ubyte[.gz]");
  dir.write("t10k-labels-idx1-ubyte", idx_bytes({3}, {1, 2, 3}));
  has(text(), "has 2 images, but");
  dir.write("t10k-labels-idx1-ubyte", idx_bytes({2}, {1, 10}));
  has(text(),
      "label 1 (byte 9) is 10, expected 0 to 9. This set has labels from 1 to 10: read its files with");
  dir.write("t10k-labels-idx1-ubyte", idx_bytes({2}, {26, 1}));
  has(text(),
      "label 0 (byte 8) is 26, expected 0 to 9. This set has labels from 1 to 26, as the letters of EMNIST: "
      "read "
      "its files with images() and labels(), and subtract 1 from the labels: classes count from 0");
  dir.write("t10k-labels-idx1-ubyte", idx_bytes({2}, {46, 0}));
  has(text(), "This set has labels from 0 to 46: read its files with images() and labels()");
  dir.write("t10k-labels-idx1-ubyte", {'P', 'K', 3, 4, 0, 0, 0, 0, 0});
  has(text(), "not an IDX file, it is a ZIP archive");
  dir.write("t10k-images-idx3-ubyte", idx_bytes({0, 1, 1}, {}));
  dir.write("t10k-labels-idx1-ubyte", idx_bytes({0}, {}));
  has(text(), "no images");
  write_part(dir, "train", 5, false);
  write_part(dir, "t10k", 5, false, 2);
  has(text(), "9 pixels per image");
  fs::remove(dir.path / "t10k-images-idx3-ubyte");
  fs::remove(dir.path / "t10k-labels-idx1-ubyte");
  has(text(), "no t10k-images-idx3-ubyte[.gz] to test on");
}
